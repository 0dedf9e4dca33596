/* Text for a person: where findings, leaks and errors go that no callback or file takes.
 *
 *     STRATA_REPORT   findings, leaks                    errors
 *     unset           standard error, unless the         nowhere
 *                     program chose a sink
 *     stderr, FILE    there, whatever else was chosen    there
 *     off             nowhere                            nowhere */
#ifndef STRATA_CORE_BASE_REPORT_H
#define STRATA_CORE_BASE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether a finding or a leak is to be written. `has_sink`: the program chose a callback, a file or an exit for it.
 * `on_stderr`: it is on standard error already. */
bool strata_report_is_wanted(bool has_sink, bool on_stderr);

/* Whether STRATA_REPORT names a place, to which errors are written, too. */
bool strata_report_has_place(void);

/* write(2) that raises neither SIGPIPE nor SIGXFSZ, for files and readers that the program does not know. */
ssize_t strata_write_without_signals(int descriptor, const char *text, size_t length);

/* A text, written in one piece unless it is long. Written to the descriptor, since an interrupted thread may hold the
 * lock of a FILE. A write neither raises SIGPIPE nor SIGXFSZ; a full pipe that does not block is waited for until it
 * was not read for two seconds. errno is kept. */
typedef struct strata_report_text {
    int descriptor;
    bool is_opened; /* and is to be closed */
    bool failed;    /* nothing more is written */
    int error;      /* errno of what failed */
    size_t used;
    char text[4096];
} strata_report_text;

void strata_report_text_begin(strata_report_text *self, bool to_stderr);
void strata_report_text_add(const char *text, size_t length, void *self);
void strata_report_text_end(strata_report_text *self);

/* One line, which begins with "strata: ". */
void strata_report_line(const char *name, const char *message);

#endif
