/* A run of the benchmark: the competitors, their tasks, and how long each may take. Each subject is a file. */
#ifndef STRATA_BENCH_CONTEST_H
#define STRATA_BENCH_CONTEST_H

#include "board.h"
#include "crowd.h"
#include "measure.h"
#include "peers.h"

enum { CONTEST_TRACES = 16, CONTEST_STACKS = PEERS_LIMIT };

/* A recorded trace, as steps. */
typedef struct recording {
    char *path;
    char name[48]; /* the file's, without what follows its first dot */
    /* what recording_read finds out; all zero before */
    uint32_t count;
    uint32_t slots, streams;
    uint64_t peak_live; /* bytes */
    uint64_t span_ns;   /* from the first step to the last */
    peer_step *steps;
    uint64_t *times_ns;      /* of each step, since the first */
    uint32_t shared_streams; /* of shared_steps: at least two */
    peer_step *shared_steps; /* the same with 30 percent of the blocks freed on another stream */
} recording;

/* Driver calls of stacks, counted in a process of its own: counting costs what is measured here. */
typedef struct counted_calls {
    double per_thousand[CONTEST_STACKS][CONTEST_TRACES]; /* steps of a trace's second replay; negative: not counted */
    /* in 100 pairs on an unknown stream */
    unsigned identities[CONTEST_STACKS], captures[CONTEST_STACKS], records[CONTEST_STACKS];
    bool counted[CONTEST_STACKS];
} counted_calls;

typedef struct contest {
    peer_choice *choices;
    size_t count;
    recording *recordings;
    size_t recording_count;
    counted_calls calls;
    board *board;
    crowd *threads;
    CUcontext context;
    size_t rounds;
    double seconds; /* that the rounds of one competitor may take for a row */
    bool quick;     /* sequences are cut short, for a look at whether everything works */
    bool simulated;
} contest;

/* One subject: rows, named before anything is measured. A row is measured only if it is asked for. */
typedef struct subject {
    const char *heading;
    size_t (*count)(const contest *of);
    void (*name)(const contest *of, size_t row, char name[BOARD_NAME_SIZE]);
    void (*begin)(contest *of); /* before the first row that is asked for; NULL: nothing to do */
    void (*measure)(contest *of, size_t row, const char *name);
    void (*end)(contest *of);
} subject;

extern const subject subject_pairs, subject_unknown, subject_live, subject_own_streams, subject_one_stream,
    subject_hand_over, subject_behind, subject_random, subject_multi_stream, subject_replay, subject_paced;

/* A side of a measurement: a competitor, what it is to do, and whether it ran out of memory. */
typedef struct entry {
    peer *peer;
    const void *task;
    crowd *threads;
    size_t operations;
    bool no_memory;
    peer_queue *queue;
    char *slots;
    unsigned char *live;
} entry;

/* Whether a competitor takes part: it was not caught, and has device memory where that is needed. */
bool contest_takes_part(const peer_choice *choice, bool device);

/* Opens every competitor that takes part, with so many streams; the others' `choice` is NULL. */
void contest_open(const contest *of, peer *peers, size_t streams, bool device);
void contest_close(const contest *of, peer *peers);

/* Measures a row: `side` with an entry for each competitor whose peer is open, and writes the medians, multiplied with
 * `scale`, into its cells. */
void contest_measure(const contest *of, const peer *peers, entry *entries, bench_plan plan, bench_side side,
                     double scale, board_row *row);

/* A row by name, with the cells of competitors that were caught filled in. */
board_row contest_row(const contest *of, const char *name);

/* Adds a target for each competitor for which `wants` is set, with its figure in the row. */
void contest_target(const contest *of, const board_row *row, size_t which, const char *what, double figure,
                    double limit);

/* A trace by its name, read when it is needed; and reads it. False, with a sentence. With `quick`, its
 * beginning. */
void recording_name(recording *into, const char *path);
bool recording_read(recording *into, bool quick, char *why, size_t size);
void recording_free(recording *self);

/* Counts driver calls in a child, of pairs on an unknown stream, of replays, or of both; before the driver is opened.
 */
void calls_count(contest *of, bool unknown_pairs, bool replays);

/* Makes a competitor work for a moment on several streams, and looks whether all of its memory is its user's alone.
 * False: it is not; choice->corrupt says how. */
bool verify_peer(peer_choice *choice);

/* Whether no two of the live blocks overlap, after the first `count` of some steps. */
bool verify_apart(peer *self, const peer_step *steps, size_t count, const char *slots);

/* Ends the program, saying that there is no host memory, if there is none. */
void *contest_need(void *made);

#endif
