/* The memory of this process that others may map. A thread answers processes of this user on a socket of the abstract
 * namespace; it is started with the first offer, and takes no signal. */
#define _GNU_SOURCE
#include "adapters/exec/ipc.h"

#include "core/base/cancel.h"
#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/last_threads.h"

#include <strata/pool.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <unistd.h>

/* A block's memory on offer. Its end closes the descriptors of the hold's parts: those that still name what was
 * exported. A program may close all descriptors that it does not know, and have other files of their numbers. */
struct exec_offer {
    uint64_t number;
    CUdeviceptr address;
    size_t bytes;
    strata_pool_hold *hold;
    strata_descriptor_mark *marks; /* of the parts' descriptors */
    struct exec_offer *next;
};

/* A socket that is listened on, as its thread knows it. */
typedef struct listening {
    int file;
    strata_descriptor_mark mark;
    sigset_t before; /* signals of the thread that has started it */
} listening;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static exec_offer *offers;                              /* guarded by the lock */
static uint64_t last_number;                            /* guarded by the lock */
static _Atomic bool any;                                /* there was an offer; for good */
static listening listener = {.file = -1};               /* the latest; guarded by the lock */
static char name[sizeof((exec_ipc_handle *)0)->socket]; /* of the latest listener; guarded by the lock */
static size_t common;                                   /* bytes that all names of the process begin with; likewise */
static unsigned listeners;                              /* their number; likewise */
static pid_t owner;                                     /* of the name; likewise. A forked child has no thread */

socklen_t exec_ipc_address(const char *socket_name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t length = strlen(socket_name);
    memcpy(address->sun_path + 1, socket_name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

bool exec_ipc_is_same_user(int connection)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

/* ---- answers ---- */

static bool send_message(int connection, const void *bytes, size_t count, int file)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL) == (ssize_t)count;
}

/* A copy of a part's descriptor; -1: there is none, or it names another file by now. */
static int copy_file(int file, const strata_descriptor_mark *mark)
{
    const int copy = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || strata_descriptor_is_marked(copy, mark))
        return copy;
    close(copy);
    return -1;
}

/* Copies of an offer's descriptors, so that none is sent under the lock. NULL: there is no such offer. */
static exec_ipc_part *copy_parts(uint64_t number, exec_ipc_answer *answer)
{
    size_t count = 0;
    exec_ipc_part *copies = NULL;
    pthread_mutex_lock(&lock);
    const exec_offer *found = offers;
    while (found && found->number != number)
        found = found->next;
    const strata_pool_part *parts = found ? strata_pool_hold_parts(found->hold, &count) : NULL;
    if (count)
        copies = strata_host_zalloc(count * sizeof *copies);
    if (copies)
        *answer = (exec_ipc_answer){.count = count, .offset = parts[0].offset, .bytes = found->bytes};
    for (size_t i = 0; copies && i < count; i++)
        copies[i] = (exec_ipc_part){parts[i].handle_bytes, copy_file(parts[i].fd, &found->marks[i])};
    pthread_mutex_unlock(&lock);
    return copies;
}

static void answer_request(int connection)
{
    const struct timeval patience = {.tv_sec = 5};
    uint64_t number;
    exec_ipc_answer answer = {0};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!exec_ipc_is_same_user(connection) || recv(connection, &number, sizeof number, 0) != sizeof number)
        return;
    exec_ipc_part *parts = copy_parts(number, &answer);
    bool sent = parts && send_message(connection, &answer, sizeof answer, -1);
    for (size_t i = 0; i < answer.count; i++) {
        sent = sent && parts[i].file >= 0 &&
               send_message(connection, &parts[i].bytes, sizeof parts[i].bytes, parts[i].file);
        if (parts[i].file >= 0)
            close(parts[i].file);
    }
    strata_host_free(parts);
}

/* False: the program has closed the listener's descriptor, and may have another file of that number. */
static bool is_open(const listening *own)
{
    return strata_descriptor_is_marked(own->file, &own->mark);
}

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/* While the process has no descriptor left, the connection waits, and the thread tries again. False: the socket is of
 * no use any more. */
static bool serve_next(const listening *own)
{
    enum { LOOK_AGAIN = 200 }; /* ms */
    struct pollfd watched = {.fd = own->file, .events = POLLIN};
    if (poll(&watched, 1, STRATA_LAST_THREADS_LOOK_MS) == 0) {
        strata_last_threads_look(&own->before);
        return true;
    }
    const int connection = accept4(own->file, NULL, NULL, SOCK_CLOEXEC);
    if (connection >= 0) {
        answer_request(connection);
        close(connection);
        return true;
    }
    const int error = errno;
    if (is_shortage(error))
        poll(NULL, 0, LOOK_AGAIN);
    return is_shortage(error) || error == EINTR || error == EAGAIN || error == ECONNABORTED;
}

/* The thread. The next offer starts another one. */
static void *serve(void *data)
{
    listening *own = data;
    strata_last_threads_mark();
    while (is_open(own) && serve_next(own))
        ;
    if (is_open(own))
        close(own->file);
    strata_host_free(own);
    return NULL;
}

/* ---- starting ---- */

/* The thread takes no signal. */
static bool start_thread(listening *own)
{
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &own->before);
    const sigset_t before = own->before; /* the thread may end at once */
    const bool started = pthread_create(&thread, NULL, serve, own) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_detach(thread);
    return started;
}

static bool listen_on(const char *chosen)
{
    struct sockaddr_un address;
    const socklen_t length = exec_ipc_address(chosen, &address);
    listening *own = strata_host_zalloc(sizeof *own);
    if (!own)
        return false;
    own->file = strata_descriptor_move_up(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (own->file >= 0 && bind(own->file, (const struct sockaddr *)&address, length) == 0 &&
        listen(own->file, 64) == 0) {
        own->mark = strata_descriptor_mark_of(own->file);
        listener = *own;
        if (start_thread(own))
            return true;
    }
    if (own->file >= 0)
        close(own->file);
    strata_host_free(own);
    listener.file = -1;
    return false;
}

/* Chooses what the names of this process begin with. */
static bool begin_names(void)
{
    uint64_t secret = 0;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        return false;
    owner = getpid();
    listeners = 0;
    common = (size_t)snprintf(name, sizeof name, "strata-ipc-%d-%016llx-", (int)owner, (unsigned long long)secret);
    return common < sizeof name;
}

/* Opens the socket and starts the thread; again if the program has closed the socket, whose name its thread may hold
 * for a moment still. Under the lock. */
static strata_status start(void)
{
    const bool begun = name[0] && owner == getpid();
    if (begun && is_open(&listener))
        return STRATA_SUCCESS;
    char chosen[sizeof name] = {0};
    bool listens = false;
    if (begun || begin_names()) {
        const int length = snprintf(chosen, sizeof chosen, "%.*s%u", (int)common, name, ++listeners);
        listens = length < (int)sizeof chosen && listen_on(chosen);
    }
    if (!listens)
        return strata_fail(STRATA_ERROR_IO, "memory cannot be offered to other processes: %s", strerror(errno));
    memcpy(name, chosen, sizeof name);
    return STRATA_SUCCESS;
}

/* ---- offers ---- */

/* Under the lock. */
static exec_offer *find(CUdeviceptr address)
{
    exec_offer *found = offers;
    while (found && found->address != address)
        found = found->next;
    return found;
}

/* Ends an offer's hold and descriptors. */
static void drop_parts(exec_offer *of)
{
    size_t count;
    const strata_pool_part *parts = strata_pool_hold_parts(of->hold, &count);
    for (size_t i = 0; i < count; i++)
        if (parts[i].fd >= 0 && (!of->marks || strata_descriptor_is_marked(parts[i].fd, &of->marks[i])))
            close(parts[i].fd);
    strata_pool_hold_end(of->hold);
    strata_host_free(of->marks);
}

static void end(exec_offer *ended)
{
    const int cancel = strata_cancel_forbid(); /* a thread can be ended in close, and the rest would stay */
    drop_parts(ended);
    strata_host_free(ended);
    strata_cancel_restore(cancel);
}

/* Exports the block's memory anew. After an error the offer is as before. Under the lock. */
static strata_status export_parts(exec_device *device, const strata_block *block, exec_offer *of)
{
    size_t count;
    exec_offer now = {.hold = NULL};
    const strata_status status =
        strata_pool_export(strata_stack_top(strata_runtime_stack(device->runtime)), block, &now.hold);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_pool_part *parts = strata_pool_hold_parts(now.hold, &count);
    now.marks = strata_host_zalloc(count * sizeof *now.marks);
    if (!now.marks) {
        drop_parts(&now);
        return STRATA_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        now.marks[i] = strata_descriptor_mark_of(parts[i].fd);
    drop_parts(of);
    of->hold = now.hold;
    of->marks = now.marks;
    return STRATA_SUCCESS;
}

static bool has_files(const exec_offer *of)
{
    size_t count;
    const strata_pool_part *parts = strata_pool_hold_parts(of->hold, &count);
    for (size_t i = 0; i < count; i++)
        if (!strata_descriptor_is_marked(parts[i].fd, &of->marks[i]))
            return false;
    return true;
}

/* Under the lock. */
static strata_status make(exec_device *device, const strata_block *block, exec_offer **out)
{
    exec_offer *made = strata_host_zalloc(sizeof *made);
    if (!made)
        return STRATA_ERROR_OUT_OF_HOST_MEMORY;
    *made = (exec_offer){.number = last_number + 1, .address = block->address, .bytes = block->requested};
    const strata_status status = export_parts(device, block, made);
    if (status != STRATA_SUCCESS) {
        strata_host_free(made);
        return status;
    }
    last_number = made->number;
    made->next = offers;
    offers = *out = made;
    atomic_store_explicit(&any, true, memory_order_release);
    return STRATA_SUCCESS;
}

strata_status exec_ipc_offer(exec_device *device, const strata_block *block, exec_ipc_handle *handle)
{
    exec_offer *unheard = NULL;                /* it was made, but no socket could be */
    const int cancel = strata_cancel_forbid(); /* files are opened and closed with the lock */
    pthread_mutex_lock(&lock);
    exec_offer *const known = find(block->address), *offered = known;
    strata_status status = STRATA_SUCCESS;
    if (!known)
        status = make(device, block, &offered);
    else if (!has_files(known))
        status = export_parts(device, block, known);
    if (status == STRATA_SUCCESS && (status = start()) != STRATA_SUCCESS && !known) {
        unheard = offered;
        offers = unheard->next;
    }
    if (status == STRATA_SUCCESS) {
        *handle = (exec_ipc_handle){.magic = EXEC_IPC_MAGIC, .number = offered->number};
        memcpy(handle->socket, name, sizeof handle->socket);
    }
    pthread_mutex_unlock(&lock);
    if (unheard)
        end(unheard);
    strata_cancel_restore(cancel);
    return status;
}

bool exec_ipc_is_own(const exec_ipc_handle *handle)
{
    pthread_mutex_lock(&lock);
    const bool own = name[0] && owner == getpid() && strncmp(handle->socket, name, common) == 0;
    pthread_mutex_unlock(&lock);
    return own;
}

exec_offer *exec_ipc_take_offer(CUdeviceptr address)
{
    if (!atomic_load_explicit(&any, memory_order_acquire))
        return NULL;
    pthread_mutex_lock(&lock);
    exec_offer **at = &offers;
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    exec_offer *taken = *at;
    if (taken)
        *at = taken->next;
    pthread_mutex_unlock(&lock);
    return taken;
}

void exec_ipc_freed(exec_offer *taken, bool freed)
{
    if (taken && freed) {
        end(taken);
    } else if (taken) {
        pthread_mutex_lock(&lock);
        taken->next = offers;
        offers = taken;
        pthread_mutex_unlock(&lock);
    }
}
