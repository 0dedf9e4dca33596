"""Exceptions: their classes, and what they tell."""

import pytest

import strata


def test_out_of_budget_is_a_memory_error_that_tells_the_numbers():
    with strata.Runtime("budget(limit=1MiB), pool") as runtime:
        kept = runtime.allocate("512KiB")
        with pytest.raises(MemoryError) as caught:
            runtime.allocate("768KiB", tag="big")
        error = caught.value
        assert isinstance(error, strata.OutOfBudgetError) and isinstance(error, strata.OutOfMemoryError)
        assert isinstance(error, strata.Error)
        assert (error.requested, error.limit, error.in_use) == (768 << 10, 1 << 20, 512 << 10)
        assert error.remaining == 512 << 10 and error.status_name == "STRATA_ERROR_OUT_OF_BUDGET"
        assert error.driver_code == 0 and error.driver_name is None
        assert "big" in str(error)
        kept.free()
        runtime.allocate("768KiB").free()


def test_out_of_device_memory_names_the_driver_call():
    with strata.Runtime("direct") as runtime:
        with pytest.raises(strata.OutOfMemoryError) as caught:
            runtime.allocate("1TiB")
        error = caught.value
        assert not isinstance(error, strata.OutOfBudgetError)
        assert error.driver_name == "CUDA_ERROR_OUT_OF_MEMORY" and error.driver_call.startswith("cuMem")


def test_a_bad_stack_is_a_value_error_with_its_place():
    with pytest.raises(strata.StackSyntaxError, match="pol") as caught:
        strata.Runtime("budget, pol")
    assert isinstance(caught.value, ValueError)


def test_bad_arguments_are_value_errors():
    for call in (lambda: strata.Runtime("pool", events="never"), lambda: strata.set_mode("quick"), lambda: strata.tag("x" * 300)):
        with pytest.raises(ValueError):
            call()
    for streams in (-1, 1 << 32):
        with pytest.raises(ValueError, match="^stream_capacity: "):
            strata.Runtime("pool", stream_capacity=streams)
    with pytest.raises(strata.Error):
        strata.Runtime("pool", device=99)


def test_texts_with_nul_are_refused_and_not_cut():
    with strata.Runtime("budget, pool") as runtime:
        for call in (
            lambda: strata.parse_size("1KiB\0GiB"),
            lambda: runtime.allocate("4096\0"),
            lambda: runtime.allocate(64, tag="a\0b"),
            lambda: strata.tag("a\0b"),
            lambda: strata.budget("1GiB\0", runtime=runtime),
            lambda: strata.budget("1GiB", name="a\0b", runtime=runtime),
            lambda: runtime.set("budget.limit", "1GiB\0"),
            lambda: strata.Runtime("pool\0, pool"),
        ):
            with pytest.raises(ValueError, match="null"):
                call()
        assert runtime.usage()["live_blocks"] == 0


def test_sizes_may_have_a_blank():
    assert strata.parse_size("8 GiB") == strata.parse_size("8GiB") == 8 << 30
    with strata.Runtime('budget(limit="64 MiB"), pool') as runtime, strata.budget("1 MiB", runtime=runtime):
        assert runtime.get("budget.limit") == 64 << 20
        with pytest.raises(strata.OutOfBudgetError):
            runtime.allocate("2 MiB")


def test_a_fraction_of_a_byte_is_refused_by_its_text():
    assert strata.parse_size("1.5KiB") == 1536
    with strata.Runtime("pool") as runtime:
        for call in (
            lambda: strata.parse_size("1.0000001"),
            lambda: runtime.allocate("1.0000001"),
            lambda: strata.Runtime("budget(limit=1.0000001), pool"),
        ):
            with pytest.raises(ValueError, match=r'"1\.0000001'):
                call()


def test_a_wrong_share_says_what_a_share_is():
    with strata.Runtime("budget, pool") as runtime:
        for wrong in ("x%", "%", "0%", "101%", "nan%"):
            with pytest.raises(ValueError, match="such as \"80%\", not '" + wrong):
                strata.budget(wrong, runtime=runtime)


def test_every_status_gives_an_exception_below_error():
    for name in ("OutOfMemoryError", "OutOfBudgetError", "HostMemoryError", "InvalidValueError", "StackSyntaxError",
                 "FreedError", "DriverNotFoundError"):
        error = getattr(strata, name)
        assert issubclass(error, strata.Error) and error.__module__ == "strata" and error.__doc__


def test_an_unknown_driver_is_told(process):
    status, _, errors = process("import strata; strata.runtime()", STRATA_DRIVER="/nowhere/libcuda.so")
    assert status == 1 and "strata.DriverNotFoundError" in errors and "/nowhere/libcuda.so" in errors


def test_a_tag_is_a_text(runtime):
    with pytest.raises(TypeError, match="tag: expected a text, not <class 'int'>"):
        runtime.allocate(10, tag=5)


def test_a_limit_above_a_signed_size_is_told(runtime):
    with strata.Runtime("pool(max_size=9223372036854775808)") as huge:
        assert huge.usage()["limit"] == 1 << 63
