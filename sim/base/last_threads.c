/* The end of a process whose threads have all ended but those of libraries: the C library exits when the last thread
 * ends, and one that a library keeps, and that takes no signals, would prevent it for ever. A thread of this kind is
 * named for its own number, "strata-4711", here and in Strata; one that inherited the name has another number. Without
 * /proc nothing is ended. */
#include "base/base.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MARK_ROOM = 16 };

static void mark_of(long thread, char mark[MARK_ROOM])
{
    snprintf(mark, MARK_ROOM, "strata-%u", (unsigned)thread % 100000000);
}

void sim_last_threads_mark(void)
{
    char mark[MARK_ROOM];
    mark_of(gettid(), mark);
    pthread_setname_np(pthread_self(), mark);
}

static bool read_file(long thread, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/%s", thread, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, size - 1) : -1;
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Reads "4711 (name) Z ...", where the name may have parentheses. */
static bool main_thread_has_ended(void)
{
    char text[512];
    const char *name_end = read_file(getpid(), "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    return name_end && name_end[1] == ' ' && name_end[2] == 'Z';
}

static bool is_marked(long thread)
{
    char mark[MARK_ROOM];
    char name[64];
    mark_of(thread, mark);
    return read_file(thread, "comm", name, sizeof name) && strncmp(name, mark, strlen(mark)) == 0 &&
           name[strlen(mark)] == '\n';
}

/* Whether only marked threads are left besides the main one, and this one has the lowest number, so that one of them
 * acts. */
static bool is_first_of_marked_threads_alone(void)
{
    DIR *threads = opendir("/proc/self/task");
    bool alone = threads != NULL;
    for (const struct dirent *entry; alone && (entry = readdir(threads));) {
        long thread = strtol(entry->d_name, NULL, 10);
        if (thread != 0 && thread != getpid())
            alone = thread >= gettid() && is_marked(thread);
    }
    if (threads)
        closedir(threads);
    return alone;
}

static sigset_t program_mask;

/* A signal that waits for a thread to take it reaches this one. */
static void *exit_as_last_thread(void *unused)
{
    (void)unused;
    pthread_sigmask(SIG_SETMASK, &program_mask, NULL);
    exit(0);
}

void sim_last_threads_look(const sigset_t *mask)
{
    pthread_t thread;
    if (!main_thread_has_ended() || !is_first_of_marked_threads_alone())
        return;
    program_mask = *mask;
    if (pthread_create(&thread, NULL, exit_as_last_thread, NULL) == 0)
        pthread_detach(thread);
}
