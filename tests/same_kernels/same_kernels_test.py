"""scripts/same-kernels and register-choices: what they call a difference, and that their tools say what they read.

    same_kernels_test.py KERNEL_SPECS DESCRIBE_KERNELS
"""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
SPECS, DESCRIBE = sys.argv[1:3]
SPEC = {"arch": "sm_90a", "num_q_heads": 8, "group": 4, "qk_depth": 128, "mask": "causal"}


def load(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(SCRIPTS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


script = load("same-kernels")
choices = load("register-choices")


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

    def test_a_constant_that_is_set_has_this_value_and_no_other_changes(self):
        def text(**constants):
            line = json.dumps({"name": "one", "spec": SPEC, "set": constants})
            return script.describe([DESCRIBE], "whole", [line], 1)[0][0]

        planned = text()["text"]
        self.assertIn(" kStashesWork = false;", planned)
        self.assertEqual(text(kStashesWork="true")["text"],
                         planned.replace(" kStashesWork = false;", " kStashesWork = true;"))
        self.assertIn("refused", text(kNoSuchThing="true"))

    def test_what_spills_fewer_bytes_is_better_and_a_stash_that_saves_none_needless(self):
        self.assertEqual(choices.verdict(False, 24, 0), "better")
        self.assertEqual(choices.verdict(True, 24, 8), "better")
        self.assertEqual(choices.verdict(True, 0, 0), "needless")
        self.assertIsNone(choices.verdict(True, 0, 24))
        self.assertIsNone(choices.verdict(False, 0, 0))

    def test_the_other_way_of_a_kernel_without_a_stash_has_room_for_one(self):
        constants = json.loads(described("whole", SPEC)[0]["plan"])["kernel"]["constants"]
        other = choices.other_way(constants)
        self.assertEqual(other["kStashesWork"], "true")
        self.assertGreaterEqual(int(other["kStashOffset"]), constants["kWorkOffset"])
        self.assertEqual(int(other["kStashOffset"]) % 16, 0)
        stash = constants["kStashBytes"] * 4 * constants["kConsumers"]
        self.assertGreaterEqual(int(other["kBarrierOffset"]), int(other["kStashOffset"]) + stash)
        moved = int(other["kBarrierOffset"]) - constants["kBarrierOffset"]
        self.assertGreaterEqual(int(other["kSmemBytes"]), constants["kSmemBytes"] + moved)
        self.assertEqual(choices.other_way({**constants, "kStashesWork": True}), {"kStashesWork": "false"})

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
