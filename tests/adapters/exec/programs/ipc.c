/* Memory that goes to another process by cuIpcGetMemHandle: this program runs itself with the handle's bytes. Two
 * blocks, of one and of many pieces of physical memory. */
#include "no_descriptors.h"
#include "wider_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANDLE = sizeof(CUipcMemHandle) };

static void put_handle(const CUipcMemHandle *handle, char text[2 * HANDLE + 1])
{
    for (int i = 0; i < HANDLE; i++)
        sprintf(text + 2 * i, "%02x", (unsigned char)handle->reserved[i]);
}

static void get_handle(const char *text, CUipcMemHandle *handle)
{
    for (int i = 0; i < HANDLE; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        handle->reserved[i] = (char)byte;
    }
}

static void CUDA_CB pause_long(void *data)
{
    (void)data;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

typedef CUresult open_handle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags);

/* What a thread opens that is ended by pthread_cancel, at the first call that a thread can be ended in. */
typedef struct ended_open {
    CUcontext context;
    CUipcMemHandle handle;
    open_handle *open;
} ended_open;

static void *open_and_end(void *data)
{
    const ended_open *own = data;
    CUdeviceptr block;
    CHECK(DRIVER(cuCtxSetCurrent)(own->context));
    pthread_cancel(pthread_self());
    (void)own->open(&block, own->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    pthread_testcancel();
    return NULL;
}

static void open_on_a_thread_that_ends(const CUipcMemHandle *handle, open_handle *open)
{
    pthread_t thread;
    ended_open own = {.handle = *handle, .open = open};
    CHECK(DRIVER(cuCtxGetCurrent)(&own.context));
    CHECK(pthread_create(&thread, NULL, open_and_end, &own));
    CHECK(pthread_join(thread, NULL));
    alarm(30); /* instead of a wait for ever for its lock */
}

/* The block is told as an allocation of its own. */
static void check_range(CUdeviceptr block, size_t bytes)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUdeviceptr start = 0, starts[2] = {0};
    size_t size = 0, sizes[2] = {0};
    void *values[] = {&starts[1], &sizes[1]};
    const CUdeviceptr last = block + bytes - 1;
    CHECK(DRIVER(cuMemGetAddressRange)(&start, &size, last));
    CHECK(DRIVER(cuPointerGetAttribute)(&starts[0], attributes[0], last));
    CHECK(DRIVER(cuPointerGetAttribute)(&sizes[0], attributes[1], last));
    CHECK(DRIVER(cuPointerGetAttributes)(2, attributes, values, last));
    CHECK(start != block || starts[0] != block || starts[1] != block);
    CHECK(size != bytes || sizes[0] != bytes || sizes[1] != bytes);
}

/* A copy of another device's context reaches the memory, as it does memory of cuMemAlloc. */
static void read_from_another_device(CUdeviceptr block)
{
    CUcontext here, there;
    unsigned char byte = 0;
    CHECK(DRIVER(cuCtxGetCurrent)(&here));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&there, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(there));
    CHECK(DRIVER(cuMemcpyDtoH)(&byte, block, 1));
    CHECK(DRIVER(cuCtxSetCurrent)(here));
    printf("read from another device: %d\n", byte);
}

/* Opens twice and closes twice, as PyTorch's workers may, while a stream still works on the memory. */
static int take(const char *text)
{
    WIDER(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 12000);
    WIDER(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 12000);
    const size_t bytes = strtoul(text, NULL, 10);
    CUipcMemHandle handle;
    CUdeviceptr block, again;
    CUstream stream;
    unsigned char first = 0, last = 0;
    begin();
    get_handle(strchr(text, ',') + 1, &handle);
    if (getenv("IPC_CANCELLED"))
        open_on_a_thread_that_ends(&handle, cuIpcOpenMemHandle_v2_found);
    const CUresult opened = cuIpcOpenMemHandle_v2_found(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (opened != CUDA_SUCCESS) {
        printf("opening gave %d\n", opened);
        return 0;
    }
    CHECK(cuIpcOpenMemHandle_v2_found(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    check_range(block, bytes);
    if (getenv("IPC_OTHER_DEVICE"))
        read_from_another_device(block);
    CHECK(DRIVER(cuMemcpyDtoH)(&first, block, 1));
    CHECK(DRIVER(cuMemcpyDtoH)(&last, block + bytes - 1, 1));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuLaunchHostFunc)(stream, pause_long, NULL));
    CHECK(DRIVER(cuMemsetD8Async)(again, 9, bytes, stream));
    CHECK(cuIpcCloseMemHandle_found(block));
    CHECK(cuIpcCloseMemHandle_found(again));
    CHECK(DRIVER(cuStreamSynchronize)(stream));
    printf("%s, read %d and %d\n", block == again ? "one mapping" : "two mappings", first, last);
    return 0;
}

static void run_taker(const char *self, size_t bytes, const CUipcMemHandle *handle)
{
    char text[2 * HANDLE + 32];
    int status;
    put_handle(handle, text + sprintf(text, "%zu,", bytes));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(self, self, text, (char *)NULL);
        _exit(errno);
    }
    waitpid(child, &status, 0);
    CHECK(status);
}

static void give(const char *self, size_t bytes)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    WIDER(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 12000);
    CUdeviceptr before, block, own;
    CUipcMemHandle handle, again;
    unsigned char last = 0;
    CHECK(DRIVER(cuMemAlloc)(&before, 1000)); /* so that the block does not begin a piece */
    CHECK(DRIVER(cuMemAlloc)(&block, bytes));
    CHECK(DRIVER(cuMemsetD8)(block, 7, bytes));
    CHECK(DRIVER(cuCtxSynchronize)());
    const CUresult made = cuIpcGetMemHandle_found(&handle, block);
    printf("a handle: %d\n", made);
    if (made != CUDA_SUCCESS)
        return;
    CHECK(cuIpcGetMemHandle_found(&again, block));
    printf("twice the same: %s, opened here: %d\n", memcmp(&handle, &again, HANDLE) == 0 ? "yes" : "no",
           cuIpcOpenMemHandle_v2_found(&own, handle, 0));
    run_taker(self, bytes, &handle);
    CHECK(DRIVER(cuMemcpyDtoH)(&last, block + bytes - 1, 1));
    printf("then here: %d\n", last);
    CHECK(DRIVER(cuMemFree)(block));
    run_taker(self, bytes, &handle);
}

/* The block lives on, and so does what others may open. */
static int fail_to_free(const char *self)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    CUdeviceptr block;
    CUipcMemHandle handle;
    CUstream stream;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
    CHECK(cuIpcGetMemHandle_found(&handle, block));
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamDestroy)(stream));
    printf("a free on no stream gave %d\n", DRIVER(cuMemFreeAsync)(block, stream));
    run_taker(self, MIB, &handle);
    CHECK(DRIVER(cuMemFree)(block));
    return 0;
}

static _Atomic int calls_made;

/* The first offer of the process, and the end of it. */
static void *offer_and_end(void *context)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    CUdeviceptr block;
    CUipcMemHandle handle;
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    pthread_cancel(pthread_self());
    calls_made += cuIpcGetMemHandle_found(&handle, block) == CUDA_SUCCESS;
    calls_made += DRIVER(cuMemFree)(block) == CUDA_SUCCESS;
    pthread_testcancel();
    return NULL;
}

static int offer_on_a_thread_that_ends(const char *self)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    CUdeviceptr block;
    CUcontext context;
    CUipcMemHandle handle;
    pthread_t thread;
    begin();
    CHECK(DRIVER(cuCtxGetCurrent)(&context));
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
    CHECK(pthread_create(&thread, NULL, offer_and_end, context));
    CHECK(pthread_join(thread, NULL));
    printf("calls that came back: %d\n", calls_made);
    alarm(60);
    CHECK(cuIpcGetMemHandle_found(&handle, block));
    setenv("IPC_CANCELLED", "1", 1);
    run_taker(self, MIB, &handle);
    return 0;
}

/* With descriptors for the memory, and none for the socket. */
static int fail_to_offer(void)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    const struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
    CUdeviceptr block;
    CUipcMemHandle handle;
    int last = -1, next, left = 0;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    setrlimit(RLIMIT_NOFILE, &few);
    while ((next = dup(0)) >= 0)
        last = next;
    close(last);
    const CUresult made = cuIpcGetMemHandle_found(&handle, block);
    while (dup(0) >= 0)
        left++;
    printf("a handle: %s, descriptors left: %d\n", made == CUDA_SUCCESS ? "made" : "refused", left);
    return 0;
}

static void close_sockets(void)
{
    struct stat facts;
    for (int file = 3; file < 1024; file++)
        if (fstat(file, &facts) == 0 && S_ISSOCK(facts.st_mode))
            close(file);
}

/* The socket of handles is closed with the others; its thread sees it later. */
static int close_unknown_descriptors(const char *self)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    WIDER(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 12000);
    CUdeviceptr block, own;
    CUipcMemHandle first, handle;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuIpcGetMemHandle_found(&first, block));
    for (unsigned i = 0; i < 2; i++) {
        close_sockets();
        sleep(i);
        CHECK(DRIVER(cuMemAlloc)(&block, MIB));
        CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
        CHECK(DRIVER(cuCtxSynchronize)());
        CHECK(cuIpcGetMemHandle_found(&handle, block));
        run_taker(self, MIB, &handle);
    }
    printf("the first one, opened here: %d\n", cuIpcOpenMemHandle_v2_found(&own, first, 0));
    return 0;
}

enum { MOST = 256 };

static void find_files(bool open[MOST])
{
    struct stat facts;
    for (int file = 0; file < MOST; file++)
        open[file] = fstat(file, &facts) == 0 && !S_ISSOCK(facts.st_mode);
}

/* The memory's descriptors are closed, and their numbers are those of a file of the program: it is neither sent to
 * others nor closed with the block. The next handle is good again. */
static int have_files_in_their_place(const char *self)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    CUdeviceptr block;
    CUipcMemHandle handle, again;
    bool before[MOST], after[MOST];
    int replaced = 0, left = 0;
    FILE *own = tmpfile();
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(DRIVER(cuMemsetD8)(block, 7, MIB));
    CHECK(DRIVER(cuCtxSynchronize)());
    find_files(before);
    CHECK(cuIpcGetMemHandle_found(&handle, block));
    find_files(after);
    for (int file = 3; file < MOST; file++)
        if (after[file] && !before[file])
            replaced += dup2(fileno(own), file) == file;
    printf("replaced: %s\n", replaced ? "some" : "none");
    run_taker(self, MIB, &handle);
    CHECK(cuIpcGetMemHandle_found(&again, block));
    run_taker(self, MIB, &handle);
    CHECK(DRIVER(cuMemFree)(block));
    for (int file = 3; file < MOST; file++)
        left += after[file] && !before[file] && fcntl(file, F_GETFD) >= 0;
    printf("the same: %s, left alone: %s\n", memcmp(&handle, &again, HANDLE) == 0 ? "yes" : "no",
           left == replaced ? "all" : "not all");
    return 0;
}

/* The thread that answers on the handle's socket keeps no process alive, which exits with its last other thread. */
static int end_main_first(void)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    CUdeviceptr block;
    CUipcMemHandle handle;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuIpcGetMemHandle_found(&handle, block));
    puts("the main thread ends");
    pthread_exit(NULL);
}

/* The thread that answers on the handle's socket. */
static int wait_without_descriptors(void)
{
    WIDER(cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000);
    CUdeviceptr block;
    CUipcMemHandle handle;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, MIB));
    CHECK(cuIpcGetMemHandle_found(&handle, block));
    const int spent = spent_without_descriptors(handle.reserved + 16, SOCK_SEQPACKET);
    printf("%s\n", spent >= 0 && spent < 200 ? "idle" : "busy");
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "main-first") == 0)
        return end_main_first();
    if (count > 1 && strcmp(arguments[1], "descriptors") == 0)
        return wait_without_descriptors();
    if (count > 1 && strcmp(arguments[1], "failed-free") == 0)
        return fail_to_free(arguments[0]);
    if (count > 1 && strcmp(arguments[1], "cancelled") == 0)
        return offer_on_a_thread_that_ends(arguments[0]);
    if (count > 1 && strcmp(arguments[1], "closed") == 0)
        return close_unknown_descriptors(arguments[0]);
    if (count > 1 && strcmp(arguments[1], "reused") == 0)
        return have_files_in_their_place(arguments[0]);
    if (count > 1 && strcmp(arguments[1], "no-socket") == 0)
        return fail_to_offer();
    if (count > 1)
        return take(arguments[1]);
    begin();
    give(arguments[0], MIB);
    give(arguments[0], 100 * MIB);
    return 0;
}
