/* Memory of other processes that is mapped here, once for each block and device. Its holders are the program's opens.
 */
#define _GNU_SOURCE
#include "adapters/exec/ipc.h"

#include "core/base/cancel.h"
#include "core/base/host_memory.h"
#include "driver/driver.h"

#include <errno.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

typedef struct guest {
    exec_ipc_handle handle;
    int device;
    unsigned holders;
    CUdeviceptr base, address; /* of the range; of the block in it */
    size_t bytes;              /* of the block */
    size_t reserved, mapped;   /* bytes */
    size_t count;              /* of parts that are mapped */
    struct guest *next;
    uint64_t parts[]; /* their bytes */
} guest;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* around an open, which waits for the other process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* inside of that, outside passed.c's */
static guest *guests;                                       /* guarded by the lock */
static _Atomic bool any;                                    /* there was one; for good */

/* ---- asking the process that has the memory ---- */

static int receive_message(int connection, void *bytes, size_t count, bool *whole)
{
    struct iovec part = {.iov_base = bytes, .iov_len = count};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    int file = -1;
    do
        got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    const struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&file, CMSG_DATA(header), sizeof file);
    *whole = got == (ssize_t)count;
    return file;
}

static int connect_to(const exec_ipc_handle *handle)
{
    const struct timeval patience = {.tv_sec = 5};
    struct sockaddr_un address;
    const socklen_t length = exec_ipc_address(handle->socket, &address);
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -1;
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(connection, (const struct sockaddr *)&address, length) == 0 && exec_ipc_is_same_user(connection) &&
        send(connection, &handle->number, sizeof handle->number, MSG_NOSIGNAL) == sizeof handle->number)
        return connection;
    close(connection);
    return -1;
}

/* ---- mappings ---- */

/* Maps a part behind those before it. The caller closes the descriptor. */
static CUresult map_part(guest *to, uint64_t bytes, int file)
{
    CUmemGenericAllocationHandle chunk;
    void *shareable = (void *)(uintptr_t)file; /* NOLINT: as the driver takes a descriptor */
    CUresult result =
        EXEC_CALL(cuMemImportFromShareableHandle, &chunk, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return result;
    result = strata_cu.MemMap(to->base + to->mapped, bytes, 0, chunk, 0);
    strata_cu.MemRelease(chunk); /* the mapping keeps the memory */
    if (result != CUDA_SUCCESS)
        return result;
    to->mapped += bytes;
    to->parts[to->count++] = bytes;
    return CUDA_SUCCESS;
}

static void unmap(guest *ended)
{
    CUdeviceptr at = ended->base;
    for (size_t i = 0; i < ended->count; i++) {
        strata_cu.MemUnmap(at, ended->parts[i]);
        at += ended->parts[i];
    }
    if (ended->reserved)
        strata_cu.MemAddressFree(ended->base, ended->reserved);
    strata_host_free(ended);
}

static CUresult give_access_to(const guest *of, int device)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return strata_cu.MemSetAccess(of->base, of->reserved, &access, 1);
}

/* Other devices that can access the memory may, as they may the stack's: a program copies between devices without a
 * word. */
static CUresult give_access(const guest *of)
{
    int count = 0, can = 0;
    const CUresult result = give_access_to(of, of->device);
    if (result != CUDA_SUCCESS || !strata_cu.DeviceCanAccessPeer || strata_cu.DeviceGetCount(&count) != CUDA_SUCCESS)
        return result;
    for (int other = 0; other < count; other++)
        if (other != of->device && strata_cu.DeviceCanAccessPeer(&can, other, of->device) == CUDA_SUCCESS && can)
            (void)give_access_to(of, other);
    return CUDA_SUCCESS;
}

static CUresult map_parts(guest *to, const exec_ipc_part *parts, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += parts[i].bytes;
    CUresult result = strata_cu.MemAddressReserve(&to->base, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    to->reserved = bytes;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = map_part(to, parts[i].bytes, parts[i].file);
    return result == CUDA_SUCCESS ? give_access(to) : result;
}

/* Returns how many parts came with a descriptor; fewer than `count`: the offer is gone. */
static size_t receive_parts(int connection, exec_ipc_part *parts, size_t count)
{
    bool whole = true;
    for (size_t i = 0; i < count; i++) {
        parts[i].file = receive_message(connection, &parts[i].bytes, sizeof parts[i].bytes, &whole);
        if (parts[i].file < 0)
            return i;
        if (!whole)
            return i + 1;
    }
    return count;
}

static CUresult make_guest(const exec_ipc_answer *answer, const exec_ipc_part *parts, int device, guest **out)
{
    guest *made = strata_host_zalloc(sizeof *made + answer->count * sizeof made->parts[0]);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device;
    const CUresult result = map_parts(made, parts, answer->count);
    if (result != CUDA_SUCCESS) {
        unmap(made);
        return result;
    }
    made->address = made->base + answer->offset;
    made->bytes = answer->bytes;
    *out = made;
    return CUDA_SUCCESS;
}

static CUresult fetch(int connection, int device, guest **out)
{
    exec_ipc_answer answer = {0};
    bool whole;
    const int stray = receive_message(connection, &answer, sizeof answer, &whole);
    if (stray >= 0)
        close(stray);
    if (!whole || !answer.count || answer.count > EXEC_IPC_MOST_PARTS)
        return CUDA_ERROR_INVALID_HANDLE;
    exec_ipc_part *parts = strata_host_zalloc(answer.count * sizeof *parts);
    if (!parts)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t came = receive_parts(connection, parts, answer.count);
    const CUresult result = came == answer.count ? make_guest(&answer, parts, device, out) : CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < came; i++)
        close(parts[i].file);
    strata_host_free(parts);
    return result;
}

/* ---- the list ---- */

/* Under the lock. */
static guest *find(const exec_ipc_handle *handle, int device)
{
    guest *found = guests;
    while (found && (found->device != device || memcmp(&found->handle, handle, sizeof *handle) != 0))
        found = found->next;
    return found;
}

/* Under the lock. */
static void hold(guest *opened, CUdeviceptr *address, size_t *bytes)
{
    opened->holders++;
    *address = opened->address;
    *bytes = opened->bytes;
}

/* Adds a holder to the mapping that there is. False: there is none. */
static bool open_known(const exec_ipc_handle *handle, int device, CUdeviceptr *address, size_t *bytes)
{
    pthread_mutex_lock(&lock);
    guest *known = find(handle, device);
    if (known)
        hold(known, address, bytes);
    pthread_mutex_unlock(&lock);
    return known != NULL;
}

/* Under `opening`. */
static CUresult add(const exec_ipc_handle *handle, int device, CUdeviceptr *address, size_t *bytes)
{
    guest *made = NULL;
    const int connection = connect_to(handle);
    if (connection < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = fetch(connection, device, &made);
    close(connection);
    if (result != CUDA_SUCCESS)
        return result;
    made->handle = *handle;
    pthread_mutex_lock(&lock);
    made->next = guests;
    guests = made;
    hold(made, address, bytes);
    atomic_store_explicit(&any, true, memory_order_release);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult exec_ipc_open(const exec_ipc_handle *handle, CUdeviceptr *address, size_t *bytes)
{
    CUdevice device;
    if (!exec_open_driver() || !strata_cu.MemAddressReserve || !strata_cu.MemMap)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = strata_cu.CtxGetDevice(&device);
    if (result != CUDA_SUCCESS)
        return result;
    const int cancel = strata_cancel_forbid(); /* a thread can be ended where it waits for the other process */
    pthread_mutex_lock(&opening);
    if (!open_known(handle, device, address, bytes))
        result = add(handle, device, address, bytes);
    pthread_mutex_unlock(&opening);
    strata_cancel_restore(cancel);
    return result;
}

bool exec_ipc_is_guest(CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    const guest *at = guests;
    while (at && address - at->base >= at->mapped)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

bool exec_ipc_find_guest(CUdeviceptr address, CUdeviceptr *start, size_t *bytes)
{
    if (!atomic_load_explicit(&any, memory_order_acquire) || exec_is_forked())
        return false;
    pthread_mutex_lock(&lock);
    const guest *at = guests;
    while (at && address - at->address >= at->bytes)
        at = at->next;
    if (at) {
        *start = at->address;
        *bytes = at->bytes;
    }
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

/* ---- closing ---- */

/* Waits for the device's primary context, unless it is the one that was waited for. */
static CUresult wait_for_primary(int device, CUcontext waited_for)
{
    unsigned flags;
    int active = 0;
    CUcontext primary = NULL;
    if (!strata_cu.DevicePrimaryCtxGetState ||
        strata_cu.DevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        strata_cu.DevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    if (primary != waited_for) {
        result = strata_cu.CtxSetCurrent(primary);
        result = result == CUDA_SUCCESS ? strata_cu.CtxSynchronize() : result;
        strata_cu.CtxSetCurrent(waited_for);
    }
    strata_cu.DevicePrimaryCtxRelease(device);
    return result;
}

/* Waits for the device, as the driver's close does: work that was submitted may still use the memory. A capture may
 * forbid the wait. */
static CUresult wait_for_work(int device)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext current = NULL;
    if (!strata_cu.CtxSynchronize)
        return CUDA_ERROR_NOT_SUPPORTED;
    strata_cu.ThreadExchangeStreamCaptureMode(&mode);
    strata_cu.CtxGetCurrent(&current);
    CUresult result = current ? strata_cu.CtxSynchronize() : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = wait_for_primary(device, current);
    strata_cu.ThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* Takes a holder from a mapping. If it was the last one, takes the mapping out of the list and returns it: an open of
 * its handle meanwhile makes another one. NULL: there are more holders, or, with *found false, there is no such
 * mapping. */
static guest *take_out_last(CUdeviceptr address, bool *found)
{
    pthread_mutex_lock(&lock);
    guest **at = &guests;
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    guest *closed = *at;
    *found = closed != NULL;
    if (closed && --closed->holders == 0)
        *at = closed->next;
    else
        closed = NULL;
    pthread_mutex_unlock(&lock);
    return closed;
}

static void put_back(guest *kept)
{
    pthread_mutex_lock(&lock);
    kept->holders = 1;
    kept->next = guests;
    guests = kept;
    pthread_mutex_unlock(&lock);
}

bool exec_ipc_close(CUdeviceptr address, CUresult *result)
{
    bool found;
    if (exec_is_forked())
        return false;
    guest *closed = take_out_last(address, &found);
    *result = closed ? wait_for_work(closed->device) : CUDA_SUCCESS;
    if (closed && *result == CUDA_SUCCESS)
        unmap(closed);
    else if (closed)
        put_back(closed);
    return found;
}
