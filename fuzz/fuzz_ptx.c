/* The simulated driver's PTX reader. The input is a module's text.
 *
 * It is read twice: by the reader, which is linked into this target, and by the driver through cuModuleLoadData. Both
 * must return the same result, and the driver must show what the reader found. */
#include "fuzz/begin.h"

#include "sim/kernels/kernels.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBALS_LIMIT = 64 << 20, READ_BACK = 4096 };

static CUresult (*get_global)(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name);

/* Parameters follow each other, aligned, inside the buffer. */
static void check_parameters(const sim_ptx_entry *entry)
{
    size_t end = 0;
    for (size_t i = 0; i < entry->count; i++) {
        assert_true(entry->sizes[i] > 0 && entry->offsets[i] >= end);
        end = entry->offsets[i] + entry->sizes[i];
        assert_true(end >= entry->offsets[i]);
    }
    assert_true(end == entry->buffer_bytes && entry->count <= SIM_MAX_PARAMETERS);
}

static uint64_t bytes_of(const sim_ptx_global *globals)
{
    uint64_t sum = 0;
    for (const sim_ptx_global *global = globals; global; global = global->next) {
        assert_true(global->bytes > 0 && global->name[0] != '\0');
        assert_null(global->block);
        sum = global->bytes > GLOBALS_LIMIT || sum > GLOBALS_LIMIT ? GLOBALS_LIMIT + 1 : sum + global->bytes;
    }
    return sum;
}

/* The last global of a name counts; it is the first in the list. */
static bool is_first(const sim_ptx_global *globals, const sim_ptx_global *which)
{
    const sim_ptx_global *global = globals;
    while (strcmp(global->name, which->name) != 0)
        global = global->next;
    return global == which;
}

static void check_zeroes(CUdeviceptr address, size_t bytes)
{
    static unsigned char seen[READ_BACK];
    size_t part = bytes < READ_BACK ? bytes : READ_BACK;
    CUdeviceptr ends[] = {address, address + bytes - part};
    for (size_t i = 0; i < 2; i++) {
        memset(seen, 0xff, part);
        check_cu(strata_cu.MemcpyDtoHAsync(seen, ends[i], part, NULL));
        check_cu(strata_cu.StreamSynchronize(NULL));
        for (size_t j = 0; j < part; j++)
            assert_true(seen[j] == 0);
    }
}

static void check_globals(CUmodule module, const sim_ptx_global *globals)
{
    for (const sim_ptx_global *global = globals; global; global = global->next) {
        CUdeviceptr address = 0;
        size_t bytes = 0;
        check_cu(get_global(&address, &bytes, module, global->name));
        if (is_first(globals, global)) {
            assert_true(bytes == global->bytes);
            check_zeroes(address, bytes);
        }
    }
}

/* The kernels that the simulated driver knows by name. */
static bool is_known(const char *name)
{
#define ROW(known, host_kernel) #known,
    static const char *const names[] = {SIM_HOST_KERNELS(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void check_functions(CUmodule module, const sim_ptx_entry *entries)
{
    for (const sim_ptx_entry *entry = entries; entry; entry = entry->next) {
        bool has_host_kernel = is_known(entry->name);
        CUfunction function, again;
        CUresult result = strata_cu.ModuleGetFunction(&function, module, entry->name);
        assert_int_equal(result, has_host_kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
        if (!has_host_kernel)
            continue;
        check_cu(strata_cu.ModuleGetFunction(&again, module, entry->name));
        assert_ptr_equal(function, again);
    }
}

/* What the driver returns for a text whose reading returned `read`. */
static void check_module(CUmodule module, CUresult loaded, CUresult read, const sim_ptx_entry *entries,
                         const sim_ptx_global *globals)
{
    if (read != CUDA_SUCCESS) {
        assert_int_equal(loaded, read);
        return;
    }
    if (bytes_of(globals) > GLOBALS_LIMIT && loaded == CUDA_ERROR_OUT_OF_MEMORY)
        return;
    assert_int_equal(loaded, CUDA_SUCCESS);
    check_functions(module, entries);
    check_globals(module, globals);
    check_cu(strata_cu.ModuleUnload(module));
}

/* Nothing tells the driver the length of a fatbin but its own head: it is no input. */
static void try_text(const char *text)
{
    if (strncmp(text, "\x50\xed\x55\xba", 4) == 0)
        return;
    sim_ptx_entry *entries;
    sim_ptx_global *globals;
    CUmodule module = NULL;
    strata_sim_accounts before = fuzz_accounts();
    CUresult read = sim_ptx_parse(text, &entries, &globals);
    CUresult loaded = strata_cu.ModuleLoadData(&module, text);
    bool cubin = strncmp(text,
                         "\x7f"
                         "ELF",
                         4) == 0;
    for (const sim_ptx_entry *entry = entries; entry; entry = entry->next)
        check_parameters(entry);
    if (cubin)
        assert_int_equal(loaded, CUDA_ERROR_NO_BINARY_FOR_GPU);
    else
        check_module(module, loaded, read, entries, globals);
    sim_ptx_free(entries, globals);
    fuzz_check_accounts(&before);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    fuzz_begin();
    strata_driver_info info;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *symbol = dlsym(library, "cuModuleGetGlobal_v2");
    assert_non_null(symbol);
    memcpy(&get_global, &symbol, sizeof symbol);
    dlclose(library);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    try_text(text);
    free(text);
    return 0;
}
