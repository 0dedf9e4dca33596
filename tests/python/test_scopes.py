"""Tags, budgets and counting scopes as context managers."""

import threading

import pytest

import strata

KIB, MIB = 1 << 10, 1 << 20


def test_the_tag_is_the_threads(runtime):
    with strata.tag("request 17") as tag:
        assert tag.name == "request 17"
        assert runtime.allocate(10).tag == "request 17"
        with strata.tag("inner"):
            assert runtime.allocate(10).tag == "inner"
        assert runtime.allocate(10, tag="own").tag == "own"
        others = []
        thread = threading.Thread(target=lambda: others.append(runtime.allocate(10).tag))
        thread.start()
        thread.join()
        assert others == [""]
    assert runtime.allocate(10).tag == ""


def test_memory_without_a_stream_has_the_tag(driver):
    driver  # its context is current
    with strata.tag("any stream"):
        memory = strata.Memory(MIB)
    assert "any stream" in strata.report()
    memory.free()


def test_a_tag_ends_with_an_exception(runtime):
    with pytest.raises(KeyError):
        with strata.tag("lost"):
            raise KeyError
    assert runtime.allocate(10).tag == ""


def test_a_budget_limits_what_the_thread_allocates(runtime):
    with strata.budget("2MiB", name="request", runtime=runtime) as budget:
        first = runtime.allocate("1.5MiB")
        with pytest.raises(strata.OutOfBudgetError, match="request") as caught:
            runtime.allocate("1MiB")
        assert caught.value.limit == 2 * MIB
        assert budget.in_use == budget.peak == 3 * MIB // 2
    runtime.allocate("4MiB").free()  # outside of it
    assert budget.usage()["refused"] == 1 and budget.in_use == 3 * MIB // 2
    first.free()
    runtime.reap()
    assert budget.in_use == 0 and budget.peak == 3 * MIB // 2


def test_budgets_nest(runtime):
    with strata.budget("4MiB", name="outer", runtime=runtime) as outer, strata.budget(
        "3MiB", name="inner", runtime=runtime
    ) as inner:
        with runtime.allocate("2MiB"):
            assert outer.in_use == inner.in_use == 2 * MIB
            with pytest.raises(strata.OutOfBudgetError, match="inner"):
                runtime.allocate("2MiB")
        with pytest.raises(ValueError, match="thread is in"):
            outer.close()


def test_an_outer_budget_limits_an_inner_one(runtime):
    with strata.budget("1MiB", name="outer", runtime=runtime), strata.budget("8MiB", runtime=runtime):
        with pytest.raises(strata.OutOfBudgetError, match="outer"):
            runtime.allocate("2MiB")


def test_several_threads_share_a_budget(runtime):
    budget = strata.budget("1MiB", runtime=runtime)
    results = []

    def work():
        with budget:
            try:
                results.append(runtime.allocate("600KiB"))
            except strata.OutOfBudgetError:
                results.append(None)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [result is None for result in results] == [False, True]
    results.clear()
    budget.close()
    assert budget.closed
    with pytest.raises(ValueError, match="closed"):
        budget.__enter__()


def test_a_reservation_is_charged_at_once(runtime):
    runtime.set("budget.limit", "4MiB")
    with strata.budget("3MiB", reserve=True, runtime=runtime) as reserved:
        assert runtime.get("budget.in_use") == 3 * MIB
        runtime.allocate("2MiB").free()
    with pytest.raises(strata.OutOfBudgetError):
        runtime.allocate("2MiB")
    reserved.close()
    runtime.allocate("2MiB").free()
    with pytest.raises(ValueError, match="reserve"):
        strata.budget(None, reserve=True, runtime=runtime)


def test_a_limit_can_change_and_be_a_share(runtime):
    budget = strata.budget(runtime=runtime)
    assert budget.limit is None
    budget.limit = "1MiB"
    assert budget.limit == MIB
    budget.limit = "50%"
    assert budget.limit == pytest.approx(strata.device_info()["total_bytes"] / 2, abs=1)
    with pytest.raises(AttributeError, match="limit"):
        del budget.limit
    assert budget.limit is not None
    budget.limit = None
    assert budget.limit is None
    for nothing in (0, "0", "0GiB"):
        with pytest.raises(ValueError, match="^limit: a limit is more than 0 bytes; None: no limit$"):
            strata.budget(nothing, runtime=runtime)
        with pytest.raises(ValueError, match="^limit: "):
            budget.limit = nothing
    total = strata.device_info()["total_bytes"]
    assert strata.budget("50%", runtime=runtime).limit == pytest.approx(total / 2, abs=1)
    for share in ("0%", "101%", "much%"):
        with pytest.raises(ValueError):
            strata.budget(share, runtime=runtime)


def test_without_a_layer_the_error_says_what_to_do():
    with strata.Runtime("pool") as runtime:
        with pytest.raises(ValueError, match="has no layer budget"):
            strata.budget("1MiB", runtime=runtime)
        with pytest.raises(ValueError, match="has no layer statistics"):
            strata.scope("x", runtime=runtime)
    with pytest.raises(TypeError, match="Runtime"):
        strata.budget("1MiB", runtime="pool")


def test_scopes_are_left_in_order_and_on_their_thread(runtime):
    outer, inner = strata.tag("outer"), strata.tag("inner")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="innermost"):
        outer.__exit__(None, None, None)
    errors = []

    def leave():
        try:
            inner.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert len(errors) == 1
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    assert runtime.allocate(10).tag == ""


def test_a_scope_counts_until_the_free(runtime):
    with strata.scope("epoch", runtime=runtime) as epoch:
        kept = runtime.allocate("1MiB")
        with strata.scope("step", runtime=runtime) as step:
            runtime.allocate("2MiB").free()
    runtime.allocate("4MiB").free()
    assert step.read()["bytes"] == {"current": 0, "peak": 2 * MIB, "total": 2 * MIB}
    assert epoch.read()["bytes"] == {"current": MIB, "peak": 3 * MIB, "total": 3 * MIB}
    assert epoch.read()["blocks"]["total"] == 2
    kept.free()
    assert epoch.read()["bytes"]["current"] == 0
    step.close()
    epoch.close()
    assert epoch.read()["bytes"]["total"] == 3 * MIB  # as it was


def test_budgets_and_scopes_end_with_their_runtime():
    runtime = strata.Runtime("budget, statistics, pool")
    outer = strata.budget("4MiB", runtime=runtime)
    with outer:
        budget = strata.budget("1MiB", runtime=runtime)
    scope, read = strata.scope(runtime=runtime), strata.scope(runtime=runtime)
    read.close()
    runtime.close()
    assert budget.closed and outer.closed
    for refused in (
        lambda: budget.peak,
        budget.usage,
        budget.__enter__,
        lambda: setattr(budget, "limit", "50%"),
        scope.read,
        scope.__enter__,
    ):
        with pytest.raises(ValueError, match="runtime is closed"):
            refused()
    assert read.read()["requested"] == 0  # as it was
    budget.close()
    scope.close()


@pytest.mark.parametrize("kind", [strata.budget, strata.scope])
def test_a_runtime_is_not_closed_while_a_thread_is_in_its_scopes(kind):
    runtime = strata.Runtime("budget, statistics, pool")
    with kind(runtime=runtime):
        with pytest.raises(strata.Error, match="leave them first") as caught:
            runtime.close()
        assert caught.value.status_name == "STRATA_ERROR_BUSY"
        runtime.allocate("1MiB").free()
    runtime.close()


def test_all_three_together(runtime):
    with strata.tag("request 17"), strata.budget("2MiB", runtime=runtime) as budget, strata.scope(runtime=runtime) as scope:
        buffer = runtime.allocate(MIB)
    assert buffer.tag == "request 17" and budget.in_use == MIB and scope.read()["bytes"]["current"] == MIB
