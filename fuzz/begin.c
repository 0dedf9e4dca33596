/* Opens the simulated driver for a fuzz target, and compares what is alive in it. */
#include "fuzz/begin.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_KEPT = 4096 };

void fuzz_begin(void)
{
    bool set = setenv("STRATA_DRIVER", "sim", 1) == 0 && setenv("STRATA_SIM_MEMORY", "1GiB", 1) == 0 &&
               setenv("CMOCKA_TEST_ABORT", "1", 1) == 0;
    if (!set)
        abort();
    test_open_driver();
    signal(SIGABRT, SIG_DFL); /* libFuzzer, which keeps the input, takes no signal that has a handler */
}

void fuzz_find(const char *name, void *entry)
{
    strata_driver_info info;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *symbol = dlsym(library, name);
    dlclose(library);
    assert_non_null(symbol);
    memcpy(entry, &symbol, sizeof symbol);
}

strata_sim_accounts fuzz_accounts(void)
{
    strata_sim_accounts accounts;
    check_cu(test_sim_control()->get_accounts(&accounts));
    return accounts;
}

void fuzz_check_accounts(const strata_sim_accounts *before)
{
    check_cu(strata_cu.CtxSynchronize());
    strata_sim_accounts now = fuzz_accounts();
    assert_true(now.contexts == before->contexts);
    assert_true(now.streams == before->streams);
    assert_true(now.modules == before->modules);
    assert_true(now.pools == before->pools);
    assert_true(now.device_blocks == before->device_blocks);
    assert_true(now.pinned_blocks == before->pinned_blocks);
    assert_true(now.reserved_bytes == before->reserved_bytes);
    assert_true(now.graphs == before->graphs);
    assert_true(now.graph_execs == before->graph_execs);
    assert_true(now.unfinished_work == 0);
    assert_true(now.events <= EVENTS_KEPT);
}

void fuzz_tell(const char *format, ...)
{
    static int telling = -1;
    if (telling < 0)
        telling = getenv("FUZZ_TELL") != NULL;
    if (!telling)
        return;
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}
