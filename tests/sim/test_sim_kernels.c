/* Modules and kernels of the simulated driver, and the twins of the pattern kernels. */
#include "support/sim.h"

static const char ptx[] = "// a comment with .visible .entry nothing(\n"
                          ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .global .align 8 .b8 table[24];\n"
                          "/* .global */\n"
                          ".visible .entry strata_pattern_fill(\n"
                          "    .param .u64 address,\n    .param .u64 bytes,\n    .param .u64 seed\n)\n{ { } ret; }\n"
                          ".visible .entry strata_pattern_check(.param .u64 a, .param .u64 b, .param .u64 c,\n"
                          "    .param .u64 d)\n{\n ret;\n}\n"
                          ".visible .entry note(.param .u8 small, .param .align 8 .b8 packed[24], .param .f32 number)\n"
                          "{\n ret;\n}\n"
                          ".visible .entry unregistered()\n{\n ret;\n}\n";

struct noted {
    unsigned calls;
    unsigned char small;
    unsigned char packed[24];
    float number;
    unsigned grid[3];
    unsigned block[3];
};

static struct noted noted;

static void note(strata_sim_launch *launch)
{
    noted.calls++;
    assert_int_equal(launch->parameter_count, 3);
    assert_int_equal(launch->parameter_sizes[1], 24);
    memcpy(&noted.small, launch->parameters[0], 1);
    memcpy(noted.packed, launch->parameters[1], 24);
    memcpy(&noted.number, launch->parameters[2], sizeof noted.number);
    memcpy(noted.grid, launch->grid, sizeof noted.grid);
    memcpy(noted.block, launch->block, sizeof noted.block);
}

static CUmodule load(void)
{
    CUmodule module;
    OK(p_cuModuleLoadData(&module, ptx));
    return module;
}

static CUfunction function_of(CUmodule module, const char *name)
{
    CUfunction function;
    OK(p_cuModuleGetFunction(&function, module, name));
    return function;
}

static void names_are_found_or_not(void **state)
{
    (void)state;
    test_sim_begin();
    CUmodule module = load();
    CUfunction function = function_of(module, "note");
    assert_ptr_equal(function, function_of(module, "note"));
    assert_int_equal(p_cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(p_cuModuleGetFunction(&function, module, "unregistered"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(p_cuModuleGetFunction(&function, NULL, "note"), CUDA_ERROR_INVALID_HANDLE);
    CUdeviceptr address;
    size_t bytes;
    OK(p_cuModuleGetGlobal(&address, &bytes, module, "table"));
    assert_int_equal(bytes, 24);
    assert_int_equal(p_cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuModuleUnload(module));
    assert_int_equal(p_cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(p_cuModuleLoadData(&module, "no ptx at all"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(p_cuModuleLoadData(&module, ".version 8.0 .entry broken(.param .u64 a"), CUDA_ERROR_INVALID_PTX);
    assert_int_equal(p_cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    test_sim_end();
}

/* Sums of offsets could run past the end of 64 bits otherwise. */
/* ---- fatbins, as fatbinary of CUDA 13 writes them ---- */

enum { FATBIN_HEAD = 16, FATBIN_ENTRY = 64, PTX_KIND = 1, CUBIN_KIND = 2, LZ4 = 0x2000, ZSTD = 0x8000 };

static struct {
    _Alignas(8) unsigned char bytes[4096];
    size_t count;
} fatbin;

static void put(size_t at, uint64_t value, size_t width)
{
    memcpy(fatbin.bytes + at, &value, width);
}

static void begin_fatbin(void)
{
    memset(&fatbin, 0, sizeof fatbin);
    put(0, 0xba55ed50, 4);
    put(4, 1, 2);
    put(6, FATBIN_HEAD, 2);
    fatbin.count = FATBIN_HEAD;
}

/* The text without its end, which the driver has to add. */
static void add_entry(unsigned kind, unsigned architecture, uint64_t flags, const char *text)
{
    const size_t at = fatbin.count, bytes = strlen(text);
    assert_true(at + FATBIN_ENTRY + bytes <= sizeof fatbin.bytes);
    put(at, kind, 2);
    put(at + 4, FATBIN_ENTRY, 4);
    put(at + 8, bytes, 8);
    put(at + 28, architecture, 4);
    put(at + 40, flags, 8);
    memcpy(fatbin.bytes + at + FATBIN_ENTRY, text, bytes);
    fatbin.count = at + FATBIN_ENTRY + bytes;
    put(8, fatbin.count - FATBIN_HEAD, 8);
}

static const char other_ptx[] = ".version 8.0\n.target sm_50\n.visible .global .b8 other[8];\n";

static void assert_loads(const char *global)
{
    CUmodule module;
    CUdeviceptr address;
    OK(p_cuModuleLoadData(&module, fatbin.bytes));
    OK(p_cuModuleGetGlobal(&address, NULL, module, global));
    OK(p_cuModuleUnload(module));
}

static void of_a_fatbin_the_newest_ptx_that_the_device_has_is_read(void **state)
{
    (void)state;
    test_sim_begin();
    begin_fatbin();
    add_entry(PTX_KIND, 50, 0, other_ptx);
    assert_loads("other");
    add_entry(CUBIN_KIND, 90, 0, "code");
    add_entry(PTX_KIND, 90, 0, ptx);
    add_entry(PTX_KIND, 52, 0, other_ptx);
    add_entry(PTX_KIND, 91, 0, other_ptx); /* the device is an sm_90 */
    add_entry(PTX_KIND, 90, LZ4, "bytes");
    assert_loads("table");
    begin_fatbin();
    add_entry(CUBIN_KIND, 90, 0, "code");
    add_entry(PTX_KIND, 100, 0, ptx);
    add_entry(PTX_KIND, 80, LZ4, "bytes");
    add_entry(PTX_KIND, 80, ZSTD, "bytes");
    CUmodule module;
    assert_int_equal(p_cuModuleLoadData(&module, fatbin.bytes), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(p_cuModuleLoadData(&module, "\x7f"
                                                 "ELF"),
                     CUDA_ERROR_NO_BINARY_FOR_GPU);
    add_entry(PTX_KIND, 80, 0, "no ptx at all");
    assert_int_equal(p_cuModuleLoadData(&module, fatbin.bytes), CUDA_ERROR_INVALID_IMAGE);
    test_sim_end();
}

static void a_fatbin_whose_parts_do_not_fit_into_it_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at, width;
        uint64_t value;
    } wrong[] = {
        {6, 2, 8},                            /* its head is shorter than that */
        {8, 8, FATBIN_ENTRY - 1},             /* less than an entry */
        {FATBIN_HEAD + 4, 4, 60},             /* the entry's head is shorter than that */
        {FATBIN_HEAD + 4, 4, 4000},           /* and longer than the fatbin */
        {FATBIN_HEAD + 8, 8, sizeof ptx},     /* as its image, by one */
        {FATBIN_HEAD + 8, 8, UINT64_MAX - 7}, /* ... */
    };
    test_sim_begin();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CUmodule module;
        begin_fatbin();
        add_entry(PTX_KIND, 90, 0, ptx);
        assert_loads("table");
        put(wrong[i].at, wrong[i].value, wrong[i].width);
        assert_int_equal(p_cuModuleLoadData(&module, fatbin.bytes), CUDA_ERROR_INVALID_IMAGE);
    }
    test_sim_end();
}

static void only_powers_of_two_that_are_not_huge_are_alignments(void **state)
{
    (void)state;
    static const char *const refused[] = {
        ".version 8.0 .entry a(.param .align 0 .u8 x){}",
        ".version 8.0 .entry a(.param .align 3 .u8 x){}",
        ".version 8.0 .entry a(.param .u8 x, .param .align 18446744073709551615 .u8 y){}",
        ".version 8.0 .entry a(.param .u8 x, .param .align 9223372036854775808 .u8 y){}",
        ".version 8.0 .global .align 12 .u8 x;",
    };
    CUmodule module;
    test_sim_begin();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(p_cuModuleLoadData(&module, refused[i]), CUDA_ERROR_INVALID_PTX);
    OK(p_cuModuleLoadData(&module, ".version 8.0 .entry a(.param .align 128 .b8 x[128]){} .global .align 256 .u8 y;"));
    OK(p_cuModuleUnload(module));
    test_sim_end();
}

static void parameters_are_copied_at_the_launch(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUmodule module = load();
    CUfunction function = function_of(module, "note");
    noted = (struct noted){0};
    unsigned char small = 7;
    unsigned char packed[24] = "packed";
    float number = 1.5F;
    void *parameters[] = {&small, packed, &number};
    OK(p_cuLaunchKernel(function, 2, 3, 4, 32, 2, 1, 0, NULL, parameters, NULL));
    small = 0;
    memset(packed, 0, sizeof packed);
    number = 0;
    assert_int_equal(noted.calls, 0);
    OK(p_cuModuleUnload(module));
    OK(p_cuStreamSynchronize(NULL));
    assert_int_equal(noted.calls, 1);
    assert_int_equal(noted.small, 7);
    assert_string_equal((const char *)noted.packed, "packed");
    assert_true(noted.number > 1.4F && noted.number < 1.6F);
    assert_int_equal(noted.grid[2], 4);
    assert_int_equal(noted.block[1], 2);
    test_sim_end();
}

static void a_parameter_buffer_is_taken_apart(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUmodule module = load();
    CUfunction function = function_of(module, "note");
    noted = (struct noted){0};
    unsigned char buffer[36] = {9};
    memcpy(buffer + 8, "buffer", 7);
    size_t bytes = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    OK(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    assert_int_equal(noted.calls, 1);
    assert_int_equal(noted.small, 9);
    assert_string_equal((const char *)noted.packed, "buffer");
    bytes = 8; /* the parameters behind that are left as they come */
    OK(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    assert_int_equal(noted.calls, 2);
    assert_int_equal(noted.small, 9);
    bytes = sizeof buffer + 1;
    assert_int_equal(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuModuleUnload(module));
    test_sim_end();
}

static void impossible_shapes_are_refused(void **state)
{
    (void)state;
    test_sim_begin();
    CUmodule module = load();
    CUfunction function = function_of(module, "note");
    unsigned char small = 0;
    unsigned char packed[24] = {0};
    float number = 0;
    void *parameters[] = {&small, packed, &number};
    static const unsigned shapes[][6] = {{0, 1, 1, 1, 1, 1},     {1, 1, 1, 0, 1, 1},       {1, 1, 1, 1025, 1, 1},
                                         {1, 1, 1, 512, 3, 1},   {1, 1, 1, 1, 1, 65},      {1, 65536, 1, 1, 1, 1},
                                         {1, 1, 65536, 1, 1, 1}, {1U << 31, 1, 1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const unsigned *s = shapes[i];
        assert_int_equal(p_cuLaunchKernel(function, s[0], s[1], s[2], s[3], s[4], s[5], 0, NULL, parameters, NULL),
                         CUDA_ERROR_INVALID_VALUE);
    }
    assert_int_equal(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 1 << 20, NULL, parameters, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(p_cuModuleUnload(module));
    test_sim_end();
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    x ^= x >> 31;
    return x;
}

static void launch_fill(CUmodule module, uint64_t address, uint64_t bytes, uint64_t seed)
{
    void *parameters[] = {&address, &bytes, &seed};
    OK(p_cuLaunchKernel(function_of(module, "strata_pattern_fill"), 1, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
}

static void launch_check(CUmodule module, uint64_t address, uint64_t bytes, uint64_t seed, const void *result)
{
    uint64_t result_address = (uint64_t)(uintptr_t)result;
    void *parameters[] = {&address, &bytes, &seed, &result_address};
    OK(p_cuLaunchKernel(function_of(module, "strata_pattern_check"), 1, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
}

static void the_pattern_is_filled_and_differences_are_counted(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUmodule module = load();
    enum { BYTES = 10007 };
    CUdeviceptr address;
    uint64_t *result;
    unsigned char host[BYTES];
    OK(p_cuMemHostAlloc((void **)&result, 16, 0));
    OK(p_cuMemAlloc(&address, BYTES));
    launch_fill(module, address, BYTES, 42);
    OK(p_cuMemcpyDtoH(host, address, BYTES));
    for (uint64_t i = 0; i < BYTES; i++)
        assert_int_equal(host[i], (unsigned char)(mix(42 + i / 8) >> (i % 8 * 8)));
    result[0] = 0;
    result[1] = UINT64_MAX;
    launch_check(module, address, BYTES, 42, result);
    OK(p_cuStreamSynchronize(NULL));
    assert_int_equal(result[0], 0);
    assert_true(result[1] == UINT64_MAX);
    static const uint64_t spoiled[] = {BYTES - 1, 5000, 5001, 4096};
    for (size_t i = 0; i < 4; i++)
        OK(p_cuMemsetD8Async(address + spoiled[i], (unsigned char)~host[spoiled[i]], 1, NULL));
    launch_check(module, address, BYTES, 42, result);
    OK(p_cuStreamSynchronize(NULL));
    assert_int_equal(result[0], 4);
    assert_int_equal(result[1], 4096);
    launch_check(module, address, 8, 42, result);
    OK(p_cuStreamSynchronize(NULL));
    assert_int_equal(result[0], 4);
    OK(p_cuMemFree(address));
    OK(p_cuMemFreeHost(result));
    OK(p_cuModuleUnload(module));
    test_sim_end();
}

int main(void)
{
    test_sim_open();
    if (p_register_kernel("note", note) != CUDA_SUCCESS || p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_or_not),
        cmocka_unit_test(of_a_fatbin_the_newest_ptx_that_the_device_has_is_read),
        cmocka_unit_test(a_fatbin_whose_parts_do_not_fit_into_it_is_refused),
        cmocka_unit_test(only_powers_of_two_that_are_not_huge_are_alignments),
        cmocka_unit_test(parameters_are_copied_at_the_launch),
        cmocka_unit_test(a_parameter_buffer_is_taken_apart),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(the_pattern_is_filled_and_differences_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
