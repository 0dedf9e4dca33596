/* Modules: PTX whose kernels are C functions found by name, and the registry of those. */
#include "kernels/kernels.h"
#include <stdlib.h>
#include <string.h>

typedef struct registered_kernel {
    struct registered_kernel *next;
    strata_sim_kernel host_kernel;
    char name[];
} registered_kernel;

static registered_kernel *kernels; /* guarded by sim.lock */

CUresult sim_kernel_register(const char *name, strata_sim_kernel host_kernel)
{
    size_t bytes = strlen(name) + 1;
    registered_kernel *made = malloc(sizeof *made + bytes);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(made->name, name, bytes);
    made->host_kernel = host_kernel;
    made->next = kernels;
    kernels = made;
    return CUDA_SUCCESS;
}

strata_sim_kernel sim_kernel_find(const char *name, const char **known_as)
{
    for (const registered_kernel *kernel = kernels; kernel; kernel = kernel->next) {
        if (strcmp(kernel->name, name) == 0) {
            *known_as = kernel->name;
            return kernel->host_kernel;
        }
    }
    return sim_host_kernel_find(name, known_as);
}

void sim_registered_kernels_close(void)
{
    while (kernels) {
        registered_kernel *next = kernels->next;
        free(kernels);
        kernels = next;
    }
}

static CUresult make_globals(sim_context *context, sim_ptx_global *globals)
{
    for (sim_ptx_global *global = globals; global; global = global->next) {
        CUresult result = sim_block_allocate(context, global->bytes, &global->block);
        if (result != CUDA_SUCCESS)
            return result;
        global->block->of_module = true;
        memset(global->block->memory, 0, global->bytes);
        sim_hooks.check->written(global->block);
    }
    return CUDA_SUCCESS;
}

void sim_module_free(CUmodule module)
{
    while (module->functions) {
        CUfunction next = module->functions->next;
        sim_slab_give(&sim_kernels.functions, module->functions);
        module->functions = next;
    }
    for (sim_ptx_global *global = module->globals; global; global = global->next)
        if (global->block)
            sim_block_free_now(global->block);
    sim_ptx_free(module->entries, module->globals);
    sim_slab_give(&sim_kernels.modules, module);
}

static bool begins_with(const char *image, const char *magic)
{
    for (; *magic; magic++, image++)
        if (*image != *magic)
            return false;
    return true;
}

/* Of a fatbin, the PTX in it is read. There is nothing that could run a cubin. */
static CUresult read_image(const void *image, sim_ptx_entry **entries, sim_ptx_global **globals)
{
    char *text;
    if (begins_with(image, "\x7f"
                           "ELF"))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!begins_with(image, "\x50\xed\x55\xba"))
        return sim_ptx_parse(image, entries, globals);
    CUresult result = sim_fatbin_copy_ptx(image, &text);
    if (result == CUDA_SUCCESS) {
        result = sim_ptx_parse(text, entries, globals);
        free(text);
    }
    return result;
}

CUresult sim_module_load(sim_context *context, CUmodule *module, const void *image)
{
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    sim_ptx_entry *entries;
    sim_ptx_global *globals;
    CUresult result = read_image(image, &entries, &globals);
    if (result != CUDA_SUCCESS)
        return result;
    CUmodule made = sim_slab_take(&sim_kernels.modules);
    if (!made) {
        sim_ptx_free(entries, globals);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->context = context;
    made->entries = entries;
    made->globals = globals;
    result = make_globals(context, globals);
    if (result != CUDA_SUCCESS) {
        sim_module_free(made);
        return result;
    }
    *module = made;
    return CUDA_SUCCESS;
}

CUresult sim_module_get_function(CUmodule module, const char *name, CUfunction *function)
{
    for (CUfunction known = module->functions; known; known = known->next) {
        if (strcmp(known->entry->name, name) == 0) {
            *function = known;
            return CUDA_SUCCESS;
        }
    }
    const sim_ptx_entry *entry = module->entries;
    while (entry && strcmp(entry->name, name) != 0)
        entry = entry->next;
    const char *known_as = NULL;
    strata_sim_kernel host_kernel = entry ? sim_kernel_find(name, &known_as) : NULL;
    if (!host_kernel)
        return CUDA_ERROR_NOT_FOUND;
    CUfunction made = sim_slab_take(&sim_kernels.functions);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->module = module;
    made->entry = entry;
    made->host_kernel = host_kernel;
    made->name = known_as;
    made->next = module->functions;
    module->functions = made;
    *function = made;
    return CUDA_SUCCESS;
}
