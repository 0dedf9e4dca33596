/* Reports of a program that runs: on SIGUSR1, and to `strata top`, which connects to an abstract socket of the
 * process's number and is answered if it is of the same user.
 *
 * One thread, which is there only if a report was asked for. It takes no signal. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "core/base/descriptor_mark.h"
#include "core/base/last_threads.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOOK_AGAIN = 200 }; /* ms: between looks for a wish, which a signal handler can only note */

static int listener = -1;                    /* the thread's; -1: there is none, or the program has closed it */
static strata_descriptor_mark listener_mark; /* constant: the descriptor may become another file of the program's */
static _Atomic bool wished;                  /* set by the signal handler */
static pid_t owner;                          /* a forked child has neither thread nor socket; constant */

/* ---- signals ---- */

/* A forked child ends, as it would have without a report. */
static void ask_for_report(int number)
{
    if (getpid() == owner) {
        atomic_store(&wished, true);
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* Handles SIGUSR1, unless the program handles or ignores it itself. */
static void take_signal(void)
{
    struct sigaction before;
    const struct sigaction own = {.sa_handler = ask_for_report, .sa_flags = SA_RESTART};
    if (sigaction(SIGUSR1, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL)
        sigaction(SIGUSR1, &own, NULL);
}

/* ---- answers ---- */

static bool is_of_this_user(int connection)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/* Sends to a peer that may have gone, or not read: without a signal, and without a wait beyond a second. */
static void send_text(const char *text, size_t length, void *data)
{
    int *connection = data;
    while (*connection >= 0 && length) {
        const ssize_t sent = send(*connection, text, length, MSG_NOSIGNAL);
        if (sent <= 0) {
            close(*connection);
            *connection = -1;
            return;
        }
        text += sent;
        length -= (size_t)sent;
    }
}

/* Answers a request of one letter: j asks for JSON, another one for text. A zero byte ends the answer; if it is
 * missing, the program has ended. */
static void answer(int connection)
{
    const struct timeval second = {.tv_sec = 1};
    char letter = 0;
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    if (is_of_this_user(connection) && recv(connection, &letter, 1, 0) == 1) {
        exec_caches_ask();
        exec_report_write(letter == 'j' ? EXEC_REPORT_JSON : EXEC_REPORT_TEXT, false, send_text, &connection);
        send_text("", 1, &connection);
    }
    if (connection >= 0)
        close(connection);
}

static bool is_listener(void)
{
    return strata_descriptor_is_marked(listener, &listener_mark);
}

static void accept_one(void)
{
    if (!is_listener()) {
        listener = -1;
        return;
    }
    const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection >= 0)
        answer(connection);
    else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) /* without a descriptor it waits on */
        poll(NULL, 0, LOOK_AGAIN);
}

static void *serve(void *data)
{
    strata_last_threads_mark();
    for (;;) {
        struct pollfd watched = {.fd = listener, .events = POLLIN}; /* of -1 poll takes no notice */
        if (poll(&watched, 1, LOOK_AGAIN) > 0)
            accept_one();
        else
            strata_last_threads_look(data);
        exec_caches_tick();
        if (atomic_exchange(&wished, false)) {
            exec_caches_ask();
            exec_report_now();
        }
    }
    return NULL;
}

/* ---- starting ---- */

static int open_listener(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int name = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "strata-exec-%d", (int)owner);
    const int file = strata_descriptor_move_up(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name);
    if (file >= 0 && bind(file, (const struct sockaddr *)&address, length) == 0 && listen(file, 4) == 0)
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

static bool start_thread(void)
{
    static sigset_t before; /* the thread's, too */
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, &attributes, serve, &before) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

/* Goes without a socket or a thread that cannot be had: the report at the end needs neither. */
void exec_live_start(void)
{
    owner = getpid();
    listener = open_listener();
    listener_mark = strata_descriptor_mark_of(listener);
    if (start_thread())
        take_signal();
}
