"""Requests of several tenants on one device: each with a tag, a budget, and counts of its own.

Runs with a GPU, and without one on the simulated driver. Needs the package strata alone.
"""

import threading

import strata

strata.configure(driver="auto", stack="budget(limit=256MiB), statistics, pool")


def serve(name: str, limit: str, sizes: list[str], told: list[str]) -> None:
    """Allocates what a request needs; a tenant that wants too much is refused, and the others go on."""
    refused = 0
    with strata.runtime().stream() as stream, strata.tag(name), strata.budget(limit, name=name) as budget:
        for size in sizes:
            try:
                with strata.allocate(size, stream) as buffer:
                    assert buffer.tag == name
            except strata.OutOfMemoryError as error:
                refused += 1
                told.append(f"{name}: {error.requested} bytes refused, {error.remaining} would have been granted")
    told.append(f"{name}: peak {budget.peak} of {budget.limit} bytes, {refused} refused")


def main() -> None:
    told: list[str] = []
    tenants = [
        threading.Thread(target=serve, args=("small", "16MiB", ["1MiB", "8MiB", "4MiB"], told)),
        threading.Thread(target=serve, args=("greedy", "16MiB", ["8MiB", "64MiB", "8MiB"], told)),
    ]
    with strata.scope("all requests") as scope:
        for tenant in tenants:
            tenant.start()
        for tenant in tenants:
            tenant.join()
        with strata.allocate("1MiB"):
            pass  # of this thread, which the scope counts
    print("\n".join(sorted(told)))
    print(f"this thread allocated {scope.read()['bytes']['total']} bytes")
    print(strata.report())


if __name__ == "__main__":
    main()
