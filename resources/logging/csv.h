/* A record as a CSV line: the columns of RMM's logging resource, then Strata's. */
#ifndef STRATA_RESOURCES_LOGGING_CSV_H
#define STRATA_RESOURCES_LOGGING_CSV_H

#include <strata/logging.h>

#define LOG_CSV_HEADER                                                                                             \
    "Thread,Time,Action,Pointer,Size,Stream,Nanoseconds,Monotonic,Serial,Number,Device,StreamId,Usable,Alignment," \
    "Slot,"                                                                                                        \
    "Generation,Access,Status,Flags,Duration,Tag"

enum { LOG_CSV_ROOM = 2048 }; /* bytes of a line */

/* Writes the line and '\n'; returns its length. */
size_t log_csv_line(const strata_log_record *record, const char *tag, char to[LOG_CSV_ROOM]);

/* The word for a kind: "allocate", ...; a failed call's has " failure" appended in the log. */
const char *log_kind_name(strata_log_kind kind);

const char *log_access_name(strata_access access);

#endif
