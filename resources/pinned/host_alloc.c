/* Page-locked memory from the driver, on a NUMA node if one is wanted: the driver's pages come from the calling
 * thread's policy, which is bound to the node for the call. */
#include "core/base/error.h"
#include "core/base/size_text.h"
#include "resources/pinned/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/mempolicy.h */
enum { POLICY_BIND = 2, NODES = 1024, WORD = 8 * sizeof(unsigned long) };

typedef struct policy {
    int mode;
    unsigned long nodes[NODES / WORD];
} policy;

/* Sets the thread's policy. The kernel reads one bit less than it is told. */
static bool set_policy(const policy *to)
{
    return syscall(SYS_set_mempolicy, to->mode, to->nodes, (unsigned long)NODES + 1) == 0;
}

/* Binds the thread's pages to a node. False, with errno: nothing changed. */
static bool bind_thread(int numa, policy *before)
{
    policy wanted = {.mode = POLICY_BIND};
    wanted.nodes[(unsigned)(numa - 1) / WORD] = 1ul << (unsigned)(numa - 1) % WORD;
    return syscall(SYS_get_mempolicy, &before->mode, before->nodes, (unsigned long)NODES, NULL, 0ul) == 0 &&
           set_policy(&wanted);
}

strata_status pinned_check_numa(int numa)
{
    policy before = {0};
    if (!numa)
        return STRATA_SUCCESS;
    if (numa > 0 && numa <= NODES && bind_thread(numa, &before)) {
        set_policy(&before);
        return STRATA_SUCCESS;
    }
    const int why = numa > 0 && numa <= NODES ? errno : EINVAL;
    return strata_fail(why == EINVAL ? STRATA_ERROR_INVALID_VALUE : STRATA_ERROR_UNSUPPORTED,
                       "pinned: the kernel refuses memory on NUMA node %d: %s; /sys/devices/system/node/has_memory "
                       "lists the nodes, and numa_node=any takes what the kernel chooses",
                       numa - 1, strerror(why));
}

unsigned pinned_flags(const strata_pinned_options *options)
{
    return (options->portable ? CU_MEMHOSTALLOC_PORTABLE : 0u) | (options->mapped ? CU_MEMHOSTALLOC_DEVICEMAP : 0u) |
           (options->write_combined ? CU_MEMHOSTALLOC_WRITECOMBINED : 0u);
}

CUresult pinned_host_alloc(void **memory, size_t bytes, unsigned flags, int numa)
{
    policy before = {0};
    *memory = NULL;
    if (!numa)
        return strata_cu.MemHostAlloc(memory, bytes, flags);
    if (!bind_thread(numa, &before)) /* the node was there when the layer was made */
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = strata_cu.MemHostAlloc(memory, bytes, flags);
    set_policy(&before);
    return result;
}
