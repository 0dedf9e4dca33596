/* Descriptors that stay open, in a process whose program may close them. */
#ifndef STRATA_CORE_BASE_DESCRIPTOR_MARK_H
#define STRATA_CORE_BASE_DESCRIPTOR_MARK_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* What a descriptor is known again by. A program may close descriptors that it does not know, as daemons do, and open
 * files of its own under their numbers: those are neither written, sent nor closed. A file system gives the inode of a
 * removed file to the next one that is made: where it tells when a file was made, the two are told apart. */
typedef struct strata_descriptor_mark {
    dev_t device;
    ino_t inode;
    mode_t type;
    struct timespec made; /* 0: the file system does not say */
} strata_descriptor_mark;

/* Marks the descriptor's file; no file, if it is not open. Keeps errno. */
strata_descriptor_mark strata_descriptor_mark_of(int descriptor);

/* Whether the descriptor is open, and its file the marked one. Async-signal-safe, and keeps errno. */
bool strata_descriptor_is_marked(int descriptor, const strata_descriptor_mark *mark);

/* Moves a new descriptor that is to stay open behind those of standard input, output and error: a program that has
 * closed them may still write there. Until the call it has such a number, for a moment. Returns it, or -1, with errno:
 * also of an open that has failed. */
int strata_descriptor_move_up(int descriptor);

#endif
