/* The socket of strata-worker, as a client sees it that sends what it likes. An input is a row of frames
 * (service/isolated/wire.h), the first of which comes after a right HELLO. A BUFFER gets memory as its descriptor, a
 * LOAD and a MAKE_GRAPH the bytes behind their fixed parts. Each request is answered once, or the connection ends;
 * nothing is left. */
#define _GNU_SOURCE
#include "fuzz/begin.h"

#include "service/isolated/wire.h"
#include "service/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t NOT_WAITED_FOR = UINT64_C(1) << 62; /* a request's answer, with this in its number */

enum { WAIT_MS = 120000, BUFFER_MOST = 1 << 20 }; /* the first: libFuzzer has a limit of its own */

static strata_sim_accounts at_first;

typedef struct session {
    worker self;
    int near, far; /* the fuzzer's end, and the worker's */
    pthread_t thread;
    worker_end end;
    wire_in in;
    wire_out out;
    bool over;             /* the worker has closed its end */
    uint64_t asked;        /* answered requests so far must be as many */
    uint64_t done, failed; /* answers */
} session;

static void *serve(void *data)
{
    session *run = data;
    run->end = worker_serve(&run->self);
    shutdown(run->far, SHUT_RDWR);
    return NULL;
}

/* ---- what the worker says ---- */

static void take(session *run, const wire_head *head, size_t bytes)
{
    switch (head->kind) {
    case WIRE_DONE:
        assert_true(bytes == sizeof(wire_done));
        run->done++;
        break;
    case WIRE_REFUSED:
        assert_true(bytes == sizeof(wire_error));
        run->failed++;
        break;
    default:
        assert_true(head->kind == WIRE_READY || head->kind == WIRE_ALIVE || head->kind == WIRE_FACTS);
        break;
    }
}

static void listen_once(session *run)
{
    struct pollfd watched = {.fd = run->near, .events = POLLIN};
    wire_head head;
    const unsigned char *payload;
    size_t bytes;
    wire_result result;
    int ready;
    while ((ready = poll(&watched, 1, WAIT_MS)) < 0 && errno == EINTR) /* libFuzzer's alarm */
        continue;
    assert_true(ready == 1);
    if (wire_fill(&run->in, run->near) == WIRE_GONE)
        run->over = true;
    while ((result = wire_next(&run->in, &head, &payload, &bytes)) == WIRE_GOES_ON)
        take(run, &head, bytes);
    assert_true(result == WIRE_LATER);
}

/* ---- what the worker is sent ---- */

/* Bytes of the payload of a frame that has a file with content, whose bytes follow it here; 0: it has none. */
static size_t fixed_part(uint32_t kind)
{
    return kind == WIRE_LOAD ? sizeof(wire_load) : kind == WIRE_MAKE_GRAPH ? sizeof(wire_graph) : 0;
}

/* -1: the frame needs none. */
static int make_descriptor(const wire_head *head, const unsigned char *payload, size_t bytes)
{
    const size_t fixed = fixed_part(head->kind);
    if (head->kind != WIRE_BUFFER && !fixed)
        return -1;
    const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    uint64_t size = 0;
    assert_true(fd >= 0);
    if (head->kind == WIRE_BUFFER && bytes >= sizeof size)
        memcpy(&size, payload, sizeof size);
    assert_true(ftruncate(fd, (off_t)(size < BUFFER_MOST ? size : BUFFER_MOST)) == 0);
    if (fixed && bytes > fixed)
        assert_true(write(fd, payload + fixed, bytes - fixed) > 0);
    if (head->number >> 63 == 0) /* else it could shrink */
        assert_true(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    return fd;
}

/* A worker that is gone sees nothing of it. */
static void send_bytes(session *run, const unsigned char *bytes, size_t count, int fd)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    _Alignas(struct cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))] = {0};
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        *rights =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    sendmsg(run->near, &message, MSG_NOSIGNAL);
    if (fd >= 0)
        close(fd);
}

static bool is_request(uint32_t kind)
{
    return (kind >= WIRE_ALLOCATE && kind <= WIRE_NOTHING) || (kind >= WIRE_COPY && kind <= WIRE_PLAY_GRAPH);
}

/* The content goes into the descriptor's file, and not over the socket. */
static void send_with_file(session *run, wire_head head, const unsigned char *payload, size_t bytes)
{
    unsigned char frame[sizeof head + sizeof(wire_graph)];
    const size_t fixed = fixed_part(head.kind);
    const int fd = make_descriptor(&head, payload, bytes);
    head.bytes = (uint32_t)(sizeof head + fixed);
    memcpy(frame, &head, sizeof head);
    memcpy(frame + sizeof head, payload, fixed);
    send_bytes(run, frame, head.bytes, fd);
}

/* Strata's own kernels write where they are told, which would end the context of all inputs. */
static bool has_own_kernel(const uint8_t *data, size_t size)
{
    return size && memmem(data, size, "strata_", 7) != NULL;
}

/* Returns the bytes of the frame, or all that are left if it is none. */
static size_t send_frame(session *run, const uint8_t *data, size_t size)
{
    wire_head head;
    if (size < sizeof head) {
        send_bytes(run, data, size, -1);
        return size;
    }
    memcpy(&head, data, sizeof head);
    const bool whole = head.bytes >= sizeof head && head.bytes % 8 == 0 && head.bytes <= size;
    const size_t bytes = whole ? head.bytes : size;
    const size_t fixed = fixed_part(head.kind);
    if (whole && fixed && bytes > sizeof head + fixed)
        send_with_file(run, head, data + sizeof head, bytes - sizeof head);
    else
        send_bytes(run, data, bytes, whole ? make_descriptor(&head, data + sizeof head, bytes - sizeof head) : -1);
    fuzz_tell("frame of kind %u, number %llx, %zu bytes\n", head.kind, (unsigned long long)head.number, bytes);
    if (!whole)
        return size;
    run->asked += is_request(head.kind);
    while (is_request(head.kind) && !(head.number & NOT_WAITED_FOR) && run->done + run->failed < run->asked &&
           !run->over)
        listen_once(run);
    return bytes;
}

/* ---- one input ---- */

static void begin(session *run)
{
    int pair[2];
    assert_true(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    *run = (session){.near = pair[0], .far = pair[1], .out.bound = 1 << 16};
    assert_true(worker_open(&run->self, run->far) && wire_in_open(&run->in, false));
    const wire_hello hello = {.version = WIRE_VERSION, .stream_count = 2, .queue_capacity = 64};
    assert_true(wire_reserve(&run->out, sizeof hello));
    wire_put(&run->out, WIRE_HELLO, 0, &hello, sizeof hello, NULL, 0);
    assert_true(wire_flush(&run->out, run->near) == WIRE_GOES_ON);
    assert_int_equal(pthread_create(&run->thread, NULL, serve, run), 0);
}

static void end(session *run)
{
    shutdown(run->near, SHUT_WR);
    while (!run->over)
        listen_once(run);
    pthread_join(run->thread, NULL);
    assert_true(run->end == WORKER_DONE || run->end == WORKER_REFUSED);
    assert_true(run->done + run->failed <= run->asked);
    fuzz_tell("%llu done, %llu refused, end %d\n", (unsigned long long)run->done, (unsigned long long)run->failed,
              (int)run->end);
    worker_close(&run->self);
    wire_in_close(&run->in);
    wire_out_close(&run->out);
    close(run->near);
    close(run->far);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    fuzz_begin();
    LLVMFuzzerTestOneInput(NULL, 0); /* what is made once */
    at_first = fuzz_accounts();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static session run;
    if (has_own_kernel(data, size))
        return -1;
    const int lowest = dup(STDERR_FILENO); /* no descriptor below it may be left open */
    close(lowest);
    begin(&run);
    for (size_t at = 0; at < size && !run.over;)
        at += send_frame(&run, data + at, size - at);
    end(&run);
    const int now = dup(STDERR_FILENO);
    close(now);
    assert_int_equal(now, lowest);
    if (at_first.contexts)
        fuzz_check_accounts(&at_first);
    return 0;
}
