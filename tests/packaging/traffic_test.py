#!/usr/bin/env python3
"""Tests bench/traffic.py without a GPU: the steps that it draws, its lines, and the table and picture of them.

Usage: traffic_test.py ROOT     ROOT is the repository's root.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop()).resolve()
sys.path.insert(0, str(ROOT / "bench"))
import plot  # noqa: E402
import steps  # noqa: E402
import tables  # noqa: E402
import traffic  # noqa: E402

ALL = ",".join(steps.SCENARIOS)


def cell(us, **more):
    return {"us": us, "error": {name: 0.002 for name in us}, **more}


def record(of_steps):
    return {"machine": "One GPU", "peers": "a peer", "command": "bench/traffic.py", "steps": of_steps}


class Steps(unittest.TestCase):
    def test_are_the_same_with_every_python(self):
        text = json.dumps([[s.name, s.requests] for s in steps.steps_of(ALL, "1-8")])
        self.assertEqual(hashlib.sha256(text.encode()).hexdigest()[:16], "ea68fd35ab2023f0")

    def test_have_keys_for_their_rows_and_fit_the_memory(self):
        for s in steps.steps_of(ALL, "1-60"):
            with self.subTest(s.name):
                self.assertTrue(all(1 <= rows <= keys for rows, keys in s.requests))
                self.assertLessEqual(sum(s.keys) * s.kv_heads * s.depth, steps.MOST_ELEMENTS)
                self.assertEqual(s.heads % s.kv_heads, 0)

    def test_put_prompts_first_but_for_drafts(self):
        for s in steps.steps_of("chat,rag,agent,chunked,d256", "1-60"):
            decodes = [rows == 1 for rows in s.rows]
            self.assertEqual(decodes, sorted(decodes), s.name)
        rows = {rows for s in steps.steps_of("drafts", "1-60") for rows in s.rows}
        self.assertEqual(rows, set(range(1, 9)))

    def test_have_pages_groups_and_depths_of_several_models(self):
        chosen = steps.steps_of(ALL, "1-60")
        self.assertEqual({s.page for s in chosen}, {1, 16, 32, 64})
        self.assertLessEqual({1, 4, 5, 6, 7, 8, 12, 16}, {s.heads // s.kv_heads for s in chosen})
        self.assertEqual({s.depth for s in chosen}, {64, 128, 256, 576})
        self.assertTrue(all(s.sink for s in chosen if (s.heads, s.depth) == (64, 64)))
        self.assertTrue(any(s.window and s.sink for s in chosen) and any(s.window and not s.sink for s in chosen))

    def test_have_heavy_tails(self):
        keys = sorted(keys for s in steps.steps_of("chat", "1-60") for keys in s.keys)
        self.assertGreater(keys[-1], 20 * keys[len(keys) // 2])

    def test_keep_the_budget_of_chunks(self):
        for s in steps.steps_of("chunked", "1-60"):
            self.assertIn(sum(s.rows), range(1, 2049), s.name)
        self.assertEqual(steps.chunks_of(100, [30, 200, 9], [0, 150, 0]), [(30, 30), (50, 200), (9, 9)])
        self.assertEqual(steps.chunks_of(64, [100, 50], [0, 0]), [(64, 64)])

    def test_of_mla_have_as_many_rows_each(self):
        for s in steps.steps_of("mla", "1-60"):
            self.assertTrue(s.uniform and max(s.rows) <= 4 and s.page == 64, s.name)

    def test_ask_for_nothing_that_is_chosen_for_speed(self):
        for s in steps.steps_of(ALL, "1-20"):
            spec = s.spec()
            self.assertNotEqual(s.uniform, spec.get("ragged", False), s.name)
            if not s.uniform:
                self.assertFalse({"max_q_len", "num_partitions"} & set(spec), s.name)
            else:
                self.assertGreaterEqual(spec["max_q_len"], max(s.rows))

    def test_of_unknown_scenarios_are_refused(self):
        with self.assertRaisesRegex(ValueError, "no scenario nap; there are chat, "):
            steps.steps_of("chat,nap", "1")
        self.assertEqual([s.seed for s in steps.steps_of("rag", "2,5-7")], [2, 5, 6, 7])


class Lines(unittest.TestCase):
    def setUp(self):
        self.step = steps.step_of("drafts", 1)

    def test_compare_with_the_best_peer(self):
        line = traffic.measured(self.step, cell({"attnjit": 10.0, "fa3": 12.5, "fi fa2": 12.0, "attnjit other": 5.0}))
        self.assertEqual((line["best"], line["ratio"], line["seed"], line["rows"]), ("fi fa2", 1.2, 1, sum(self.step.rows)))
        self.assertIn("1.200  attnjit 10.0", traffic.line_of(line))

    def test_have_no_ratio_without_attnjit_or_a_peer(self):
        for us in ({"attnjit": 10.0}, {"fa3": 10.0}):
            line = traffic.measured(self.step, cell(us, left_out={"other": "wrong by 1"}))
            self.assertNotIn("ratio", line)
            self.assertIn("other left out: wrong by 1", traffic.line_of(line))

    def results(self):
        return [{**traffic.measured(steps.step_of(scenario, seed), cell({"attnjit": 10.0, "fa3": us}))}
                for scenario, seed, us in (("chat", 1, 8.0), ("chat", 2, 20.0), ("mla", 1, 10.0))]

    def test_are_summed_up_by_scenario(self):
        self.assertEqual(traffic.summary(self.results()),
                         ["chat         2 steps, geometric mean 1.265, least 0.800, 1 below 1",
                          "mla          1 steps, geometric mean 1.000, least 1.000, 0 below 1",
                          "all          3 steps, geometric mean 1.170, least 0.800, 1 below 1"])

    def test_make_the_table_of_the_documents(self):
        results = self.results()
        del results[2]["ratio"]
        self.assertIn("| chat | 2 | 1.265 | 0.800 | 1 |\n| mla (without " + results[2]["name"] + ") | 0 | nan | nan | 0 |\n"
                      "| all | 2 | 1.265 | 0.800 | 1 |\n", tables.table_of(record(results)))

    def test_make_the_picture(self):
        read, plot.read = plot.read, lambda name: record(self.results())
        svg, plot.read = plot.traffic(), read
        self.assertEqual(svg.count("<circle"), 3)
        self.assertIn("<title>geometric mean 1.265</title>", svg)

    def test_are_written_as_json_a_step_a_line(self):
        path = pathlib.Path(self.id() + ".json")
        try:
            traffic.write(path, {"machine": "One GPU"}, self.results())
            text = path.read_text(encoding="utf-8")
            self.assertEqual([one["ratio"] for one in json.loads(text)["steps"]], [0.8, 2.0, 1.0])
            self.assertEqual(len(text.splitlines()), 8)
        finally:
            path.unlink(missing_ok=True)

    def test_pools_hold_two_tables_of_the_largest_step(self):
        chosen = steps.steps_of("rag", "1-8")
        most = max(sum(-(-keys // s.page) for keys in s.keys) * s.page * s.kv_heads * s.depth for s in chosen)
        self.assertGreaterEqual(traffic.elements_of(chosen, 1), 2 * most)


class Command(unittest.TestCase):
    def run_it(self, *words):
        return subprocess.run([sys.executable, "-B", str(ROOT / "bench/traffic.py"), *words], capture_output=True, text=True,
                              check=False)

    def test_lists_steps_without_a_gpu(self):
        run = self.run_it("--list", "--scenarios", "chat,mla", "--seeds", "3")
        self.assertEqual((run.returncode, [line.split(".")[0] for line in run.stdout.splitlines()]), (0, ["chat", "mla"]))
        run = self.run_it("--dry", "--scenarios", "drafts", "--seeds", "1-2")
        specs = [json.loads(line)["spec"] for line in run.stdout.splitlines()]
        self.assertEqual([spec["ragged"] for spec in specs], [True, True])

    def test_refuses_what_there_is_not(self):
        run = self.run_it("--list", "--scenarios", "nap")
        self.assertEqual(run.returncode, 2)
        self.assertIn("no scenario nap", run.stderr)


if __name__ == "__main__":
    unittest.main()
