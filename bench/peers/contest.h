/* A run: competitors, subjects, limits. Each subject is a file. */
#ifndef STRATA_BENCH_CONTEST_H
#define STRATA_BENCH_CONTEST_H

#include "board.h"
#include "measure.h"
#include "peers.h"
#include "workers.h"

enum { CONTEST_TRACES = 16, CONTEST_STACKS = PEERS_LIMIT };

/* A recorded trace, as steps. */
typedef struct recording {
    char *path;
    char name[48]; /* the file's name up to its first dot */
    /* filled by recording_read; zero before */
    uint32_t count;
    uint32_t slots, streams;
    uint64_t peak_live; /* bytes */
    uint64_t span_ns;   /* from the first step to the last */
    peer_step *steps;
    uint64_t *times_ns;      /* each step's time after the first */
    uint32_t shared_streams; /* at least two */
    peer_step *shared_steps; /* with 30 percent of the blocks freed on another stream */
} recording;

/* Driver calls, counted in a process of its own. */
typedef struct counted_calls {
    double per_thousand[CONTEST_STACKS]
                       [CONTEST_TRACES]; /* per 1,000 steps of a trace's second pass; negative: not counted */
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
    workers *threads;
    CUcontext context;
    size_t rounds;
    double seconds; /* for the rounds of a competitor in a row */
    bool quick;     /* short sequences, to see whether everything works */
    bool simulated;
} contest;

/* Rows are named first, and measured if the filter selects them. */
typedef struct subject {
    const char *heading;
    size_t (*count)(const contest *of);
    void (*name)(const contest *of, size_t row, char name[BOARD_NAME_SIZE]);
    void (*begin)(contest *of); /* before the first selected row, or NULL */
    void (*measure)(contest *of, size_t row, const char *name);
    void (*end)(contest *of);
} subject;

extern const subject subject_pairs, subject_unknown, subject_live, subject_own_streams, subject_mixed_sizes,
    subject_one_stream, subject_hand_over, subject_behind, subject_random, subject_multi_stream, subject_first_random,
    subject_first_streams, subject_replay, subject_paced;

typedef struct entry {
    peer *peer;
    const void *task;
    workers *threads;
    size_t operations;
    double spent; /* nanoseconds, where a run measures itself */
    bool no_memory;
    peer_queue *queue;
    char *slots;
    unsigned char *live;
} entry;

/* Whether a competitor takes part: it is not corrupt, and has device memory if `device` asks for it. */
bool contest_takes_part(const peer_choice *choice, bool device);

/* Opens competitors that take part. The others have a NULL `choice`. */
void contest_open(const contest *of, peer *peers, size_t streams, bool device);
void contest_close(const contest *of, peer *peers);

/* Sets peer_choice.room for competitors that are opened from then on. */
void contest_give_room(contest *of, uint64_t bytes);

/* Measures a row, with an entry for each open competitor. Cells are the medians times `scale`. */
void contest_measure(const contest *of, const peer *peers, entry *entries, bench_plan plan, bench_side side,
                     double scale, board_row *row);

/* A row with the cells of corrupt competitors filled in. */
board_row contest_row(const contest *of, const char *name);

/* Adds a target for each competitor for which `wants` is set. */
void contest_target(const contest *of, const board_row *row, size_t which, const char *what, double figure,
                    double limit);

/* recording_name only stores the path; recording_read reads the trace, with `quick` its beginning. False: `why` has the
 * reason. */
void recording_name(recording *into, const char *path);
bool recording_read(recording *into, bool quick, char *why, size_t size);
void recording_free(recording *self);

/* Counts in a child process. Called before the driver is opened. */
void calls_count(contest *of, bool unknown_pairs, bool replays);

/* Checks that each block belongs to its user alone. False: choice->corrupt has the reason. */
bool verify_peer(peer_choice *choice);

/* Whether live blocks are apart after the first `count` steps. */
bool verify_apart(peer *self, const peer_step *steps, size_t count, const char *slots);

/* Returns `made`; exits if it is NULL. */
void *contest_require(void *made);

#endif
