/* A sampling guard's calls among others: while the program captures, while its callback is in the middle of something,
 * while layers above keep errors to themselves, and with another guard in the stack. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "support/effort.h"
#include "support/faults.h"

enum { BYTES = 5000 };

static strata_runtime *runtime;

static strata_resource *top(void)
{
    return strata_stack_top(strata_runtime_stack(runtime));
}

static uint64_t value(const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(runtime), name, &value, NULL));
    return value;
}

static void begin(const char *text)
{
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
}

static void end(void)
{
    check_ok(strata_runtime_destroy(runtime));
    runtime = NULL;
}

static strata_block allocate(void)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    return block;
}

/* ---- captures ---- */

static void *driver_call(const char *name)
{
    strata_driver_info info;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

/* cudaStreamBeginCapture's own mode forbids its thread, and others, much of what the driver can be asked. */
static void a_check_leaves_the_program_its_capture(void **state)
{
    (void)state;
    CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
    CUresult (*end_capture)(CUstream, CUgraph *);
    CUresult (*destroy_graph)(CUgraph);
    *(void **)&begin_capture = driver_call("cuStreamBeginCapture_v2");
    *(void **)&end_capture = driver_call("cuStreamEndCapture");
    *(void **)&destroy_graph = driver_call("cuGraphDestroy");
    CUstream stream;
    CUgraph graph = NULL;
    begin("guard(sample=1), async");
    strata_block block = allocate();
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_cu(begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    strata_status checked = strata_guard_check(top(), NULL);
    check_cu(end_capture(stream, &graph));
    check_ok(checked);
    check_cu(destroy_graph(graph));
    check_cu(test_cu()->StreamDestroy(stream));
    check_ok(strata_runtime_deallocate(runtime, &block));
    end();
}

/* ---- several guards ---- */

static void count_bytes(const char *text, size_t length, void *data)
{
    (void)text;
    *(size_t *)data += length;
}

static size_t bytes_of_suspects(strata_resource *from)
{
    size_t bytes = 0;
    strata_guard_suspects_print(from, count_bytes, &bytes);
    return bytes;
}

static void suspects_are_printed_from_below_another_guard(void **state)
{
    (void)state;
    begin("guard(stacks=off), guard(sample=1, stacks=off), async");
    strata_block block = allocate();
    assert_int_equal(value("guard[1].sampled"), 1);
    size_t bytes = bytes_of_suspects(strata_stack_layer(strata_runtime_stack(runtime), "guard", 1));
    assert_true(bytes > 0);
    assert_int_equal(bytes_of_suspects(top()), bytes);
    assert_int_equal(bytes_of_suspects(strata_stack_layer(strata_runtime_stack(runtime), "async", 0)), 0);
    check_ok(strata_runtime_deallocate(runtime, &block));
    end();
}

static void suspects_of_every_sampling_guard_are_printed(void **state)
{
    (void)state;
    begin("guard(sample=1, stacks=off), guard(sample=1, stacks=off), async");
    strata_block blocks[2] = {allocate()};
    size_t bytes = bytes_of_suspects(top());
    uint64_t none = 0;
    check_ok(strata_control(strata_runtime_stack(runtime), "guard[0].sample_blocks", NULL, &none));
    blocks[1] = allocate();
    assert_true(value("guard[0].sampled") == 1 && value("guard[1].sampled") == 1);
    assert_true(bytes > 0 && bytes_of_suspects(top()) > bytes + bytes / 2);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    end();
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_leaves_the_program_its_capture),
        cmocka_unit_test(suspects_are_printed_from_below_another_guard),
        cmocka_unit_test(suspects_of_every_sampling_guard_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
