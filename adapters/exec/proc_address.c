/* cuGetProcAddress, in both of its forms: the driver answers first, then the hook replaces its answer.
 *
 * A name can mean several functions, by the version and the default stream that are asked for. A hook stands for one of
 * them: it is put in only if the driver gives the same function for the hook's own version. So a later form of a
 * function, which a newer driver may have, goes through untouched. */
#include "adapters/exec/exec.h"

#include "adapters/exec/uncovered.h"

#include <string.h>

typedef CUresult get_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *found);
typedef CUresult get_v1(const char *symbol, void **function, int version, cuuint64_t flags);

/* The driver's answer to the hook's own question. NULL: none. */
static void *ask_as_hook(exec_hook hook)
{
    const exec_hook_row *row = &exec_hook_rows[hook];
    const cuuint64_t flags =
        row->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUdriverProcAddressQueryResult found;
    void *function = NULL;
    get_v2 *second = EXEC_REAL(cuGetProcAddress_v2);
    if (second)
        return second(row->base, &function, row->version, flags, &found) == CUDA_SUCCESS ? function : NULL;
    get_v1 *first = EXEC_REAL(cuGetProcAddress);
    return first && first(row->base, &function, row->version, flags) == CUDA_SUCCESS ? function : NULL;
}

/* A function without a per-thread form is the same with either flag: the row that is not per-thread stands for it. */
static void put_hook(const char *symbol, bool per_thread, void **function)
{
    const exec_hook no_hook = EXEC_HOOK_COUNT;
    exec_hook matching = no_hook;
    for (exec_hook i = exec_hook_first_of_base(symbol); i < EXEC_HOOK_COUNT; i++) {
        const exec_hook_row *row = &exec_hook_rows[i];
        if (strcmp(row->base, symbol) != 0)
            break;
        if (!row->version || ask_as_hook(i) != *function)
            continue;
        if (matching == no_hook || row->per_thread == per_thread)
            matching = i;
    }
    if (matching == no_hook)
        *function = exec_uncovered(symbol, *function);
    else if (exec_hook_found(matching, *function))
        *function = exec_hook_function(matching);
}

static void replace(const char *symbol, cuuint64_t flags, void **function)
{
    if (symbol && function && *function && exec_is_wanted())
        put_hook(symbol, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, function);
}

EXEC_EXPORT CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    get_v1 *real = EXEC_REAL(cuGetProcAddress);
    const CUresult result = real ? real(symbol, function, version, flags) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        replace(symbol, flags, function);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                                 CUdriverProcAddressQueryResult *found)
{
    get_v2 *real = EXEC_REAL(cuGetProcAddress_v2);
    const CUresult result = real ? real(symbol, function, version, flags, found) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        replace(symbol, flags, function);
    return result;
}
