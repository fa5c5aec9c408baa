"""Which of the resources of a Redfish service has the power of the machine, for three makes and odd ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.samples import Status
from memtui.recording.network_power.connection import Forbidden, NoAnswer, Unreachable
from memtui.recording.network_power.redfish_resource import RESOURCES, PowerResource, find, watts_of
from tests.support.redfish_service import MAKES, chassis, collection, ilo, openbmc, power, root

CHASSIS = "/redfish/v1/Chassis"


def getter(tree):
    asked = []

    def get(path):
        asked.append(path)
        if path not in tree:
            raise NoAnswer(Status.UNSUPPORTED, f"the Redfish service has no {path}")
        if isinstance(tree[path], NoAnswer):
            raise tree[path]
        return tree[path]

    return get, asked


def machine(name, watts=500.0, kind="RackMount", **about):
    path = f"{CHASSIS}/{name}"
    return {
        path: chassis(name, kind, Power="Power", **about),
        f"{path}/Power": power(f"{path}/Power", {"PowerConsumedWatts": watts}),
    }


def service(*machines):
    names = [path.removeprefix(f"{CHASSIS}/") for one in machines for path in one if not path.endswith("/Power")]
    return {"/redfish/v1/": root(), CHASSIS: collection(*names)} | {k: v for one in machines for k, v in one.items()}


@pytest.mark.parametrize("make", MAKES)
def test_makes(make):
    tree, kind, watts = MAKES[make]
    get, asked = getter(tree())
    resource, found = find(get)
    assert (resource.kind, found) == (kind, watts)
    assert resource.watts(get(resource.path)) == watts
    assert len(asked) <= 8


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("watts", [None, 0, -3, 1e7, "291", True, float("nan")])
def test_no_figure_is_no_power(make, watts):
    get, _ = getter(MAKES[make][0](watts))
    with pytest.raises(NoAnswer, match="has the power of a machine"):
        find(get)


def test_the_machine_goes_before_its_parts_and_what_it_stands_in():
    blade = machine("Blade1", 400.0, "Blade", system="1", inside="Enclosure")
    found, watts = find(
        getter(service(machine("Enclosure", 4000.0, "Rack"), blade, machine("GPU", 700.0, "Module")))[0]
    )
    assert (found, watts) == (PowerResource("Power", f"{CHASSIS}/Blade1/Power"), 400.0)
    assert find(getter(service(machine("A", 1.0, system="1"), machine("B", 2.0)))[0])[1] == 1.0
    assert find(getter(service(machine("B", 2.0)))[0])[1] == 2.0
    with pytest.raises(NoAnswer, match="none of the 1 chassis"):
        find(getter(service(machine("PSU", 2.0, "Component")))[0])


def test_several_machines_are_for_the_user_to_choose_from():
    get, _ = getter(service(machine("A", 100.0, system="1"), machine("B", 200.0, system="2")))
    with pytest.raises(NoAnswer, match=f"name one, as in --redfish HOST{CHASSIS}/A") as error:
        find(get)
    assert error.value.status == Status.UNSUPPORTED
    assert find(get, f"{CHASSIS}/B")[1] == 200.0


def test_a_named_chassis_without_a_power():
    get, _ = getter(service(machine("A", None, system="1")))
    with pytest.raises(NoAnswer, match=f"{CHASSIS}/A has no power"):
        find(get, f"{CHASSIS}/A")
    with pytest.raises(NoAnswer, match=f"has no {CHASSIS}/C"):
        find(get, f"{CHASSIS}/C")


@pytest.mark.parametrize(
    "tree", [{"/redfish/v1/": {}}, {"/redfish/v1/": {"Chassis": {"@odata.id": "//evil/redfish/v1"}}}]
)
def test_what_is_no_service(tree):
    with pytest.raises(NoAnswer, match="not a Redfish service"):
        find(getter(tree)[0])


def test_members_that_lead_elsewhere_or_nowhere_are_left_out():
    tree = service(machine("A", 100.0, system="1"))
    tree[CHASSIS]["Members"] += [{"@odata.id": "https://evil.example/redfish/v1"}, {"@odata.id": f"{CHASSIS}/gone"}, 7]
    get, asked = getter(tree)
    assert find(get)[1] == 100.0
    assert not any("evil" in path for path in asked)


@pytest.mark.parametrize("error", [Unreachable("it does not answer"), NoAnswer(Status.DENIED, "refused")])
def test_a_service_that_fails_is_not_one_without_a_power(error):
    tree = openbmc()
    tree[f"{CHASSIS}/chassis/EnvironmentMetrics"] = error
    with pytest.raises(NoAnswer, match=error.reason):
        find(getter(tree)[0])


@pytest.mark.parametrize(
    "error",
    [
        NoAnswer(Status.FAILED, "the Redfish service answers HTTP 500"),
        Forbidden(Status.DENIED, "the Redfish service refuses (HTTP 403)"),
    ],
)
def test_the_other_resource_where_one_cannot_be_given(error):
    tree = ilo()
    tree[f"{CHASSIS}/1/"]["EnvironmentMetrics"] = {"@odata.id": f"{CHASSIS}/1/EnvironmentMetrics"}
    tree[f"{CHASSIS}/1/EnvironmentMetrics"] = error
    tree["/redfish/v1/Chassis/"]["Members"].append({"@odata.id": f"{CHASSIS}/2"})
    tree[f"{CHASSIS}/2"] = error
    assert find(getter(tree)[0]) == (PowerResource("Power", f"{CHASSIS}/1/Power/"), 139.0)


def test_controls_of_parts_are_not_the_whole():
    # As XCC lists them: the server, and then its CPUs and memory.
    controls = (
        {"Name": "Server Power Control", "PowerConsumedWatts": 316.0},
        {"Name": "CPU Sub-system Power", "PhysicalContext": "CPU", "PowerConsumedWatts": 100.0},
        {"Name": "Memory Sub-system Power", "PhysicalContext": "Memory", "PowerConsumedWatts": 30.0},
    )
    assert watts_of("Power", power("", *controls)) == 316.0
    with pytest.raises(NoAnswer, match="several figures"):
        watts_of("Power", power("", controls[0], controls[0]))


def test_a_figure_beyond_all_floats_is_a_reason():
    for watts in (10**400, -(10**400)):
        with pytest.raises(NoAnswer, match="which cannot be"):
            watts_of("Power", power("", {"PowerConsumedWatts": watts}))


@pytest.mark.parametrize("kind", [[], {}, ["Module"]])
def test_an_odd_kind_of_chassis_spoils_nothing(kind):
    assert find(getter(service(machine("A", 100.0, system="1"), machine("B", None, kind)))[0])[1] == 100.0


def test_a_mean_of_minutes_is_another_figure():
    document = power(
        "", {"PowerConsumedWatts": None, "PowerMetrics": {"AverageConsumedWatts": 275, "IntervalInMin": 1}}
    )
    with pytest.raises(NoAnswer, match="no power at present"):
        watts_of("Power", document)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["PowerWatts", "Reading", "PowerControl", "PowerConsumedWatts", "PhysicalContext", "Chassis",
                         "Members", "Links", "@odata.id", "Power", "ChassisType"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["PowerWatts", "PowerControl", "Chassis", "Members", "Power", "Links"]), JSON))
def test_any_answer_gives_watts_or_a_reason(document):
    for kind in RESOURCES:
        with suppress(NoAnswer):
            assert 0 < watts_of(kind, document) < 1e6
    with suppress(NoAnswer):
        assert 0 < find(lambda path: document)[1] < 1e6
