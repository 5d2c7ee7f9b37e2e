"""scripts/same-kernels: what it calls a difference, and that both of its tools say what it reads.

    same_kernels_test.py KERNEL_SPECS DESCRIBE_KERNELS
"""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "same-kernels")
SPECS, DESCRIBE = sys.argv[1:3]
SPEC = {"arch": "sm_90a", "num_q_heads": 8, "group": 4, "qk_depth": 128, "mask": "causal"}


def load():
    loader = importlib.machinery.SourceFileLoader("same_kernels", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("same_kernels", loader))
    loader.exec_module(module)
    return module


script = load()


def described(mode, *specs):
    lines = [json.dumps({"name": "one", "spec": spec}) for spec in specs]
    return script.describe([DESCRIBE], mode, lines, 1)[0]


class SameKernels(unittest.TestCase):
    def test_a_spec_is_described_the_same_twice(self):
        one, other = described("digests", SPEC, SPEC)
        self.assertEqual(script.kinds_of_difference(one, other), [])

    def test_another_kernel_differs_in_text_plan_and_launch(self):
        one, other = described("digests", SPEC, {**SPEC, "page_size": 64})
        self.assertEqual(script.kinds_of_difference(one, other), ["text", "plan", "launch"])

    def test_a_spec_that_only_one_side_serves_is_told(self):
        served, refused = described("digests", SPEC, {**SPEC, "qk_depth": 1000})
        self.assertIn("refused", refused)
        self.assertEqual(script.kinds_of_difference(served, refused), ["served only in the base"])
        self.assertEqual(script.kinds_of_difference(refused, served), ["served only here"])

    def test_the_whole_texts_are_those_of_the_digests_and_their_difference_is_shown(self):
        one, other = described("whole", SPEC, {**SPEC, "mask": "null"})
        self.assertIn("struct Config", one["text"])
        self.assertIn("+", script.shown(one, other, "text"))
        self.assertEqual(one["launch"].count('"entry"'), 3)  # a launch each, none of them an error

    def test_every_spec_of_the_list_is_read_and_most_are_served_on_each_architecture(self):
        lines = subprocess.run([SPECS, "5", "7"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        sample = lines[::97]
        answers = script.describe([DESCRIBE], "digests", sample, 2)[0]
        served = {}
        for line, answer in zip(sample, answers):
            served.setdefault(json.loads(line)["spec"]["arch"], []).append("refused" not in answer)
        self.assertEqual(sorted(served), ["sm_100a", "sm_103a", "sm_90a"])
        for arch, which in served.items():
            self.assertGreater(sum(which), 0.8 * len(which), arch)

    def test_a_tool_that_dies_is_no_answer(self):
        with self.assertRaises(SystemExit):
            script.describe(["/bin/false"], "digests", ["{}"], 1)


unittest.main(argv=sys.argv[:1])
