"""``memtui place`` on profiles: what it prints, stores and refuses."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import memtui
from memtui.cli.main import main
from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.options import PLACE
from memtui.placement import text
from memtui.placement.configurations import configuration, pair_configurations
from memtui.placement.graph import Configuration
from memtui.placement.plan import PlacementPlan
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.run import PlanRun, lines
from memtui.placement.solvers.pareto import ParetoPoint
from memtui.placement.solvers.solver import PlanRequest, find, mode_of
from memtui.placement.store import ProfileFile
from tests.support.placement_cases import PAGE, STATIC_CASE, SYNC_CASE, in_pages
from tests.support.placements import SLOW

Capture = pytest.CaptureFixture[str]


def stored(path: Path, profile: Profile) -> Path:
    file = ProfileFile.create(path, profile.graph, profile.pools, profile.resolution_ns)
    file.add(profile.samples)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return stored(tmp_path / "p.memtui", in_pages(STATIC_CASE))


def refused(capsys: Capture, *argv: str | Path) -> str:
    """Run a command that fails, and return its line on stderr."""
    try:
        code = main([*map(str, argv), "--no-config"])
    except SystemExit as left:  # argparse's own
        code = left.code  # type: ignore[assignment]
    assert code == 2
    out, error = capsys.readouterr()
    assert not out
    assert error.count("\n") == 1
    return error


def output(capsys: Capture, *argv: str | Path) -> str:
    assert main([*map(str, argv), "--no-config"]) == 0
    out, error = capsys.readouterr()
    assert not error
    return out


def test_solve_says_what_may_live_in_slow_memory_and_what_it_costs(file: Path, capsys: Capture) -> None:
    out = output(capsys, "place", "solve", file, "--limit", str(5 * PAGE))
    assert "slow is emulated" in out
    assert "static, at most 20.0 KiB (20480 bytes) in dram of 36.0 KiB alive" in out
    times = {line.split("  ")[1]: line.split("  ", 2)[2].split()[:2] for line in out.splitlines() if " ns " in line}
    assert times == {"all in dram": ["40.0", "ns"], "static plan": ["45.0", "ns"], "first touch": ["53.0", "ns"]}
    assert "+12.5 %" in out
    assert "no placement of this kind is faster" in out
    assert "may live in slow: 1 of 3 tensors that may be placed, 16.0 KiB" in out
    assert "16.0 KiB  0-2 (always)    t1" in out
    assert "single times" in out


def test_solve_as_json(file: Path, capsys: Capture) -> None:
    document = json.loads(output(capsys, "place", "solve", file, "--ratio", "4:5", "--json"))
    assert document["emulated"] == [SLOW]
    assert document["plan"]["emulated"] is True
    assert (document["plan"]["limit_bytes"], document["peak_bytes"]) == (5 * PAGE, 9 * PAGE)
    assert (document["plan"]["predicted_ns"], document["all_fast_ns"], document["first_touch_ns"]) == (45, 40, 53)
    assert document["plan"]["status"] == "optimal"
    assert {(s["storage"], s["pool"]) for s in document["plan"]["spans"]} == {
        ("t1", SLOW),
        ("t2", "dram"),
        ("t3", "dram"),
    }


def test_a_program_gets_the_same_plan(file: Path) -> None:
    before = file.read_bytes()
    plan = memtui.placement.solve(file, ratio="4:5")
    assert (plan.limit_bytes, plan.predicted_ns, plan.status) == (5 * PAGE, 45, "optimal")
    assert replace(memtui.placement.solve(str(file), limit_bytes=5 * PAGE), solve_s=plan.solve_s) == plan
    assert memtui.placement.solve(file, limit_bytes=5 * PAGE, formulation="first-touch").predicted_ns == 53
    assert file.read_bytes() == before
    for wrong in ({}, {"limit_bytes": 1, "ratio": "1:1"}, {"ratio": "1"}, {"ratio": "1:1", "formulation": "x"}):
        with pytest.raises(ValueError, match=r"limit_bytes|ratio|formulation"):
            memtui.placement.solve(file, **wrong)
    with pytest.raises(UserError, match="no slow pool"):
        memtui.placement.solve(file, ratio="1:1", slow="x")


def test_a_plan_can_be_added_up_from_json(tmp_path: Path, capsys: Capture) -> None:
    profile = in_pages(SYNC_CASE)
    slow = replace(profile.pools[1], read_fixed_ns=0.25, write_fixed_ns=0.5)
    profile = Profile(
        profile.graph, (profile.fast, slow), profile.samples, about={"slow read": 2e9, "slow written": 1e9}
    )
    file = ProfileFile.create(tmp_path / "p.memtui", profile.graph, profile.pools, 0.0, dict(profile.about))
    file.add(profile.samples)
    document = json.loads(
        output(capsys, "place", "solve", file.path, "--limit", str(7 * PAGE), "--formulation", "sync", "--json")
    )
    plan = PlacementPlan.from_dict(document["plan"])
    times = {(t["op"], Configuration.from_dict(t["configuration"])): t for t in document["times"]}
    total = sum(move.time_ns for move in plan.moves)
    for index, op in enumerate(profile.graph.ops):
        placed = configuration(
            profile.graph, op, lambda s, index=index: plan.pool_of(s, index) if s in SYNC_NAMES else "dram"
        )
        total += times[op.name, placed]["counted_ns"]
        assert times[op.name, placed]["samples"] == 1
    assert total == pytest.approx(document["plan"]["predicted_ns"])
    assert len(plan.moves) == 2
    pool = document["pools"][1]
    assert pool["read_bytes_per_s"] == pool["bandwidth_bytes_per_s"]["copy_out"]
    assert pool["write_bytes_per_s"] == pool["bandwidth_bytes_per_s"]["copy_in"]
    assert (pool["bandwidth_bytes_per_s"]["read"], pool["bandwidth_bytes_per_s"]["written"]) == (2e9, 1e9)
    assert (pool["fixed_ns"]["copy_out"], pool["fixed_ns"]["copy_in"]) == (0.25, 0.5)
    assert document["peak_bytes_in_pages"] == document["peak_bytes"]


SYNC_NAMES = {s.name for s in SYNC_CASE.graph.storages.values() if s.counted}


def test_a_profile_without_fixed_times_of_moves_is_read_and_reported(tmp_path: Path, capsys: Capture) -> None:
    profile = in_pages(SYNC_CASE)
    file = stored(tmp_path / "p.memtui", profile)
    with closing(sqlite3.connect(file)) as db:  # as an older memtui wrote it
        (text,) = db.execute("SELECT value FROM meta WHERE key = 'pools'").fetchone()
        pools = [
            {k: v for k, v in pool.items() if "_fixed_" not in k and "start" not in k} for pool in json.loads(text)
        ]
        db.execute("UPDATE meta SET value = ? WHERE key = 'pools'", (json.dumps(pools),))
        db.commit()
    assert ProfileFile(file).profile() == profile
    argv = ("place", "solve", file, "--limit", str(7 * PAGE), "--formulation")
    note = "its moves have no fixed time, so those of a few KiB seem to be free"
    assert note in output(capsys, *argv, "sync")
    assert note not in output(capsys, *argv, "static")


def sampled(profile: Profile, count: int, spread: float, mode: str = "single", factor: float = 1.0) -> list[Samples]:
    """Return this number of samples for each of the profile's, with this spread."""
    return [
        Samples(
            s.op,
            s.configuration,
            mode,
            tuple(factor * s.time_ns[0] * (1 + spread * (n % 2 * 2 - 1)) for n in range(count)),
            tuple(range(count)),
        )
        for s in profile.samples
    ]


@pytest.mark.parametrize(
    ("count", "spread", "sentence"),
    [
        (20, 0.01, "single times: 20 samples or more of each, spread 1.0 %"),
        (20, 0.4, "single times are worth little: spread 41.0 % (more than 20.0 %)"),
        (4, 0.01, "single times are worth little: 4 samples of some (fewer than 6)"),
    ],
)
def test_solve_says_how_reliable_the_times_are(
    count: int, spread: float, sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    profile = Profile(STATIC_CASE.graph, STATIC_CASE.pools, tuple(sampled(STATIC_CASE, count, spread)))
    file = stored(tmp_path / "p.memtui", profile)
    assert sentence in output(capsys, "place", "solve", file, "--ratio", "1:1")
    quality = json.loads(output(capsys, "place", "solve", file, "--ratio", "1:1", "--json"))["times_worth"]
    assert quality["least_samples"] == count
    assert bool(quality["doubts"]) == ("worth little" in sentence)


def test_solve_says_when_two_ways_of_timing_contradict_each_other(tmp_path: Path, capsys: Capture) -> None:
    single = sampled(STATIC_CASE, 20, 0.01)
    mixed = [s.time_ns for s in reversed(single)]
    other = [
        Samples(s.op, s.configuration, "isolated", tuple(ns * (1 + 9 * (number % 2)) for ns in times), s.run)
        for number, (s, times) in enumerate(zip(single, mixed, strict=True))
    ]
    file = stored(tmp_path / "p.memtui", Profile(STATIC_CASE.graph, STATIC_CASE.pools, (*single, *other)))
    assert "neither times nor their order" in output(capsys, "place", "compare", file)
    sentence = "times are worth little: compare with {} says neither times nor order can be relied upon"
    assert "single " + sentence.format("isolated") in output(capsys, "place", "solve", file, "--ratio", "1:1")
    out = output(capsys, "place", "solve", file, "--ratio", "1:1", "--mode", "isolated")
    assert "isolated " + sentence.format("single") in out


def test_a_plan_rests_upon_single_times_where_there_are_as_many(tmp_path: Path, capsys: Capture) -> None:
    two = (*sampled(STATIC_CASE, 9, 0, "isolated", 0.5), *sampled(STATIC_CASE, 9, 0, "single"))
    profile = Profile(STATIC_CASE.graph, STATIC_CASE.pools, two)
    assert mode_of(profile, SLOW) == "single"
    assert mode_of(Profile(profile.graph, profile.pools, two[:-1]), SLOW) == "isolated"


def test_moves_are_listed(tmp_path: Path, capsys: Capture) -> None:
    file = stored(tmp_path / "p.memtui", in_pages(SYNC_CASE))
    out = output(capsys, "place", "solve", file, "--limit", str(7 * PAGE), "--formulation", "sync")
    assert "2 moves, 32.0 KiB; ops wait 5.00 ns for them" in out
    assert "16.0 KiB  before op 2     t1: dram to slow, 3.00 ns" in out


def test_first_touch_is_a_baseline(file: Path, capsys: Capture) -> None:
    out = output(capsys, "place", "solve", file, "--limit", str(5 * PAGE), "--formulation", "first-touch")
    assert "a baseline: nothing was optimised" in out
    assert "static plan" not in out


def test_plans_and_curves_stay_in_the_profile(file: Path, capsys: Capture) -> None:
    out = output(capsys, "place", "solve", file, "--ratio", "1:1", "--pareto")
    assert "o static plan, x first touch, # both, . all in dram" in out
    assert out.count("\n") > 30
    output(capsys, "place", "solve", file, "--ratio", "1:1", "--formulation", "first-touch")
    output(capsys, "place", "solve", file, "--ratio", "1:1")
    assert [plan.formulation for plan in ProfileFile(file).plans()] == ["static", "first-touch"]
    ((key, points),) = ProfileFile(file).curves().items()
    assert key == ("static", SLOW, "single")
    assert len(points) == 9
    assert points[-1].predicted_ns == 40
    assert ProfileFile(file).profile() == in_pages(STATIC_CASE)


def test_the_curve_alone(file: Path, capsys: Capture) -> None:
    document = json.loads(output(capsys, "place", "solve", file, "--pareto", "--json"))
    assert document["plan"] is None
    assert [point["limit_bytes"] for point in document["pareto"]] == [n * 9 * PAGE // 8 for n in range(9)]


def test_compare(file: Path, capsys: Capture) -> None:
    out = output(capsys, "place", "compare", file)
    assert "simultaneous against single: 16 of 16 pairs judged" in out
    assert "ranking reliable, absolute times not: 0.0 % of the times are within 20 %" in out
    assert "least 1.50   quartile 1.50   median 1.50   quartile 1.50   most 1.50" in out
    assert "output  median 1.30" in out
    document = json.loads(output(capsys, "place", "compare", file, "--json"))
    assert document["comparisons"][0]["log_correlation"] == pytest.approx(1)
    assert document["comparisons"][0]["verdict"] == "ranking reliable, absolute times not"
    assert document["slow_down"][SLOW]["output"]["measured"] == 3


def test_the_table_has_every_op_in_every_configuration(tmp_path: Path, capsys: Capture) -> None:
    profile = in_pages(STATIC_CASE)
    fewer = replace(profile, samples=tuple(s for s in profile.samples if (s.op, s.mode) != ("n4", "simultaneous")))
    file = stored(tmp_path / "p.memtui", fewer)
    table = output(capsys, "place", "compare", file, "--table").partition("spread of both")[2].splitlines()
    rows = [line for line in table if "--" in line]
    assert len(rows) == len(pair_configurations(profile.graph, ("dram", SLOW))) == 2 + 4 + 8 + 2
    ops = [line for line in table if line.startswith(tuple("0123"))]
    assert [op.split()[1] for op in ops] == ["n1", "n2", "n3", "n4"]
    assert sum("1.50" in row for row in rows) == 14
    assert [row.split()[0] for row in rows[-2:]] == ["n/a", "n/a"], "n4 was not measured in simultaneous runs"
    assert "--table" in refused(capsys, "place", "compare", file, "--table", "--json")


def test_bad_input_is_one_line(file: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("x" * 200)
    solve = ("place", "solve")
    assert "say how much fast memory there is: --limit 8GiB" in refused(capsys, *solve, file)
    assert "no slow pool numa:7; it has slow" in refused(capsys, *solve, file, "--limit", "1", "--slow", "numa:7")
    assert "is not a size" in refused(capsys, *solve, file, "--limit", "much")
    for wrong in ("1:x", "-1:2", "1:-2"):
        assert "is not a ratio of slow to fast memory" in refused(capsys, *solve, file, "--ratio", wrong)
    assert "not allowed with" in refused(capsys, *solve, file, "--ratio", "1:1", "--limit", "1")
    assert "no such file" in refused(capsys, *solve, tmp_path / "none", "--limit", "1")
    assert "is not a memtui placement profile" in refused(capsys, *solve, other, "--limit", "1")
    assert "there is no command 'guess'" in refused(capsys, "place", "guess", file)
    assert "has no isolated sample" in refused(capsys, *solve, file, "--limit", "1", "--mode", "isolated")


@pytest.mark.parametrize(
    ("argv", "flag", "where"),
    [
        (("solve", "-o", "x"), "-o", "memtui place profile"),
        (("solve", "--pools", "dram"), "--pools", "memtui place profile"),
        (("compare", "--mode", "isolated,single"), "--mode", "memtui place profile and memtui place solve"),
        (("show", "--run"), "--run", "memtui place solve"),
        (("compare", "--ascii"), "--ascii", "memtui place profile and memtui place show"),
    ],
)
def test_an_option_of_another_of_its_commands_is_reported(
    argv: tuple[str, ...], flag: str, where: str, file: Path, capsys: Capture
) -> None:
    verb, *more = argv
    error = refused(capsys, "place", verb, file, *more)
    assert error.startswith(f"memtui place {verb}: {flag} is an option of {where}; see memtui place {verb} --help")


def test_each_of_its_commands_has_its_own_help(capsys: Capture) -> None:
    pages = {}
    for verb in PLACE:
        with pytest.raises(SystemExit):
            main(["place", verb, "--help"])
        pages[verb] = capsys.readouterr().out
    assert [verb for verb in PLACE if "--ratio" in pages[verb]] == ["solve"]
    assert [verb for verb in PLACE if "--pools" in pages[verb]] == ["profile"]
    assert [verb for verb in PLACE if "--theme" in pages[verb]] == ["profile", "show"]


@pytest.mark.parametrize("argv", [("replay",), ("place", "show")])
def test_without_a_terminal_the_error_names_commands_that_print(
    argv: tuple[str, ...], file: Path, capsys: Capture
) -> None:
    error = refused(capsys, *argv, file)
    assert "use `memtui place compare` or `memtui place solve`, which print what is in a profile" in error


def test_it_is_no_session(file: Path, capsys: Capture) -> None:
    error = refused(capsys, "compare", file, file)
    assert "p.memtui: is a placement profile, and not a memtui session: memtui place compare, solve and show" in error


def test_a_limit_below_what_must_stay_is_reported(tmp_path: Path, capsys: Capture) -> None:
    profile = in_pages(STATIC_CASE)
    fields = to_json(profile)
    fields["graph"]["tensors"][1]["pools"] = ["dram"]
    name = fields["graph"]["tensors"][1]["name"]
    fields["samples"] = [s for s in fields["samples"] if not _has(fields, s, name)]
    file = stored(tmp_path / "p.memtui", Profile.from_dict(fields))
    error = refused(capsys, "place", "solve", file, "--limit", "8KiB")
    assert "the limit of 8.00 KiB is below what must stay in dram: 16.0 KiB (16384 bytes) while" in error


def _has(fields: dict, sample: dict, tensor: str) -> bool:  # type: ignore[type-arg]
    """Whether a sample has the tensor in slow memory."""
    op = next(op for op in fields["graph"]["ops"] if op["name"] == sample["op"])
    names, pools = (*op["inputs"], *op["outputs"]), (*sample["configuration"][0], *sample["configuration"][1])
    return (tensor, SLOW) in zip(names, pools, strict=True)


def test_compare_needs_two_ways(tmp_path: Path, capsys: Capture) -> None:
    single = stored(tmp_path / "one.memtui", STATIC_CASE)
    assert "only isolated times are in it: to compare" in refused(capsys, "place", "compare", single)
    none = ProfileFile.create(tmp_path / "none.memtui", STATIC_CASE.graph, STATIC_CASE.pools).path
    assert "no times are in it" in refused(capsys, "place", "compare", none)
    assert "profile it to its end first" in refused(capsys, "place", "solve", none, "--limit", "1")


def test_a_profile_that_cannot_be_written_is_solved_all_the_same(
    file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        from memtui.core.errors import UserError

        raise UserError("disk full")

    monkeypatch.setattr(ProfileFile, "store_plan", full)
    assert main(["place", "solve", str(file), "--limit", "20KiB", "--no-config"]) == 0
    out, error = capsys.readouterr()
    assert "may live in slow" in out
    assert error == "memtui place: the plan is not kept for memtui place show: disk full\n"


def test_what_a_pool_is_noted_for_is_reported(tmp_path: Path, capsys: Capture) -> None:
    graph = STATIC_CASE.graph
    pools = (Pool("dram"), Pool(SLOW, note="lies in the page cache"))
    two = [
        Samples(s.op, s.configuration, mode, s.time_ns, s.run)
        for s in STATIC_CASE.samples
        for mode in ("single", "isolated")
    ]
    file = stored(tmp_path / "p.memtui", Profile(graph, pools, tuple(two)))
    assert "slow: lies in the page cache" in output(capsys, "place", "compare", file)


def test_an_executed_plan_says_which_way_it_is_off() -> None:
    plan = find(in_pages(STATIC_CASE), PlanRequest(5 * PAGE, "static"))
    assert plan.predicted_ns == 45
    for actual_ns, sentence in (
        (67.5, "executed: 67.5 ns, predicted 45.0 ns: it took 1.50 times as long as predicted"),
        (30.0, "executed: 30.0 ns, predicted 45.0 ns: it was 1.50 times as fast as predicted"),
    ):
        assert lines(PlanRun(plan, actual_ns, 0.0, True, True, 0.0, 0, 0, {}), None)[0] == sentence


def test_all_in_fast_memory_is_a_line_of_the_curve() -> None:
    points = [ParetoPoint(0, 30.0, 0.0, 30.0), ParetoPoint(4, 20.0, 0.0, 25.0), ParetoPoint(8, 10.0, 0.0, 10.0)]
    drawn = [line for line in text.curve_lines(points, "static", "dram", 10.0) if "|" in line]
    assert drawn[0].endswith("|#")
    assert drawn[-1].endswith("." * 20 + "#")
    assert not any("." in line.partition("|")[2] for line in drawn[:-1])
    assert "all in dram" not in next(text.curve_lines(points, "static", "dram", None))


@pytest.mark.parametrize(("fast", "why"), [("dram", "no CPU was free"), ("cuda", "they are not implemented on a GPU")])
def test_a_plan_without_moves_during_ops_says_why(fast: str, why: str, tmp_path: Path, capsys: Capture) -> None:
    profile = in_pages(SYNC_CASE)
    pools = (replace(profile.pools[0], name=fast), *profile.pools[1:])

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(fast if name == profile.fast.name else name for name in names)

    samples = [
        replace(one, configuration=Configuration(renamed(one.configuration.inputs), renamed(one.configuration.outputs)))
        for one in profile.samples
    ]
    file = stored(tmp_path / "p.memtui", replace(profile, pools=pools, samples=tuple(samples)))
    solve = ("place", "solve", file, "--ratio", "1:1", "--formulation")
    assert f"no move is during an op: {why}" in output(capsys, *solve, "async")
    assert "no move is during an op" not in output(capsys, *solve, "sync")
