/* A plain model of a program of calls: its runtimes, streams and blocks, their contents, and so the answer of every
 * call.
 *
 * Contents are patterns (driver/kernels/kernels.h) with a seed of their own for each write. Kernels and copies read
 * them back in the order of the program's calls, and they are compared when the device is waited for; so a missing
 * wait, or memory that is reused too early, shows as wrong bytes. */
#ifndef STRATA_FUZZ_MODEL_H
#define STRATA_FUZZ_MODEL_H

#include "fuzz/begin.h"
#include "fuzz/input.h"
#include "fuzz/trouble.h"

enum {
    RUNTIMES = 2,
    BLOCKS = 24,       /* live ones at most */
    STALE = 8,         /* freed ones that are remembered */
    STREAMS = 12,      /* open ones at most */
    HELD = 128,        /* frees that may wait for the end of a capture */
    USES = 6,          /* between prepare and finish */
    PIECES = 2,        /* parts of a block with patterns of their own */
    EDGE = 4096,       /* bytes of a copy, and of either end of a large block */
    WHOLE = 64 << 10,  /* the largest block that is written in one part */
    LARGEST = 4 << 20, /* the largest request that may succeed */
};

typedef enum stream_kind { POOL, REGISTERED, UNKNOWN, ZERO, LEGACY, PER_THREAD } stream_kind;

typedef enum model_capture { CAPTURE_NONE, CAPTURE_ALIVE, CAPTURE_DEAD } model_capture;

typedef struct model_stream {
    CUstream handle;
    stream_kind kind;
    bool blocking;         /* synchronizes with the legacy stream */
    model_capture capture; /* by the program, with owner and mode: fuzz/captures.h */
    unsigned capturer;
    CUstreamCaptureMode mode;
    uint64_t origin; /* of the capture: number of the stream that began it */
    uint32_t behind; /* steps of the capture before this stream's next work: fuzz/graphs.h */
    uint64_t number; /* unique, unlike the handle */
    unsigned owner;  /* POOL, REGISTERED: runtime; PER_THREAD: player */
} model_stream;

typedef struct model_runtime {
    strata_runtime *handle; /* NULL: none */
    bool ordered;           /* the stack allocates in stream order */
    bool limited;           /* the stack has a limit */
    bool aligns;            /* serves requests for more than 256 bytes of alignment */
    size_t live_bytes, live_blocks;
    unsigned stream_capacity, streams_taken;
} model_runtime;

typedef struct model_piece {
    size_t offset, bytes;
    uint64_t seed;
} model_piece;

typedef enum model_touch { UNTOUCHED, TOUCHED, PERHAPS_TOUCHED } model_touch;

typedef struct model_block {
    strata_block block;
    unsigned runtime;
    model_piece pieces[PIECES]; /* contents, as far as they are known */
    size_t piece_count;
    uint64_t alloc_stream;   /* number of the stream it was allocated on */
    bool alloc_stream_known; /* at its allocation */
    uint64_t only;           /* number of the only stream that used it; 0: several did */
    bool saw_legacy;         /* the legacy stream has allocated or used it */
    model_touch touch;       /* whether a use was recorded since its allocation */
} model_block;

typedef struct model_stale {
    strata_block block;
    unsigned runtime;
} model_stale;

/* A free that waits, or may wait, for the end of a capture. */
typedef struct model_held {
    strata_block block;
    unsigned runtime;
    uint64_t stream; /* its number */
    bool surely;     /* the stream was captured then, and still is */
} model_held;

/* When the work of a use is submitted. */
typedef enum model_work { WORK_NONE, WORK_AT_PREPARE, WORK_AT_FINISH } model_work;

/* A use between its prepare and its finish. */
typedef struct model_use {
    strata_block block;
    unsigned runtime;
    unsigned player;
    uint64_t stream; /* its number */
    strata_access access;
    model_work work;
} model_use;

extern struct model {
    fuzz_input input;
    model_runtime runtimes[RUNTIMES];
    model_block blocks[BLOCKS];
    size_t block_count;
    model_stale stale[STALE];
    size_t stale_count;
    model_held held[HELD];
    size_t held_count;
    model_stream streams[STREAMS];
    size_t stream_count;
    model_use uses[USES];
    size_t use_count;
    uint64_t last_number; /* of a stream */
    uint64_t last_seed;
} model;

/* ---- what calls answer ---- */

/* Makes a call under the planned trouble, and checks its answer: the wanted status, or one that the trouble explains.
 * Returns whether it succeeded. */
#define did(call, want) (trouble_begin(), model_did(trouble_end(call), (want), #call, __FILE__, __LINE__))
bool model_did(strata_status got, strata_status want, const char *call, const char *file, int line);

/* As did(), for a call about a stream and a block (or NULL), which a capture may refuse: fuzz/captures.h. */
#define did_beside(call, want, stream, block) \
    (trouble_begin(), model_did_beside(trouble_end(call), (want), (stream), (block), #call, __FILE__, __LINE__))

bool model_did_beside(strata_status got, strata_status want, const model_stream *stream, const model_block *block,
                      const char *call, const char *file, int line);

/* ---- picking what an operation is about ---- */

model_runtime *model_pick_runtime(void);
model_block *model_pick_block(void);                      /* NULL: none */
model_block *model_pick_block_of(unsigned runtime);       /* NULL: none */
const model_stream *model_pick_stream(void);              /* one that the current player may name */
const model_stream *model_stream_of(uint64_t number);     /* NULL if it is closed */
const model_stream *model_player_stream(uint64_t number); /* NULL also if the current player may not name it */
model_block *model_block_of(strata_block_id id);          /* NULL if it is not live */
strata_access model_pick_access(void);
size_t model_pick_size(void);

/* ---- runtimes and streams ---- */

/* Makes a runtime of a stack drawn from the input. False after trouble. */
bool model_make_runtime(unsigned which);

/* Destroys a runtime without blocks and acquired streams. */
void model_end_runtime(unsigned which);

void model_open_stream(stream_kind kind, unsigned owner);

/* Releases, unregisters or destroys the stream, by its kind. */
void model_close_stream(size_t which);

bool model_is_legacy(const model_stream *stream);
bool model_is_known(const model_stream *stream);
bool model_is_known_handle(CUstream handle);

/* ---- blocks ---- */

/* Adds an allocated block, which must not overlap others. */
model_block *model_enter(const strata_block *block, unsigned runtime, const model_stream *stream);

/* Removes a freed block. */
void model_leave(model_block *block);

/* Whether a use of the block is in progress. */
bool model_is_pinned(const strata_block *block);

/* Whether this work could run at the same time as that of a use in progress. */
bool model_races(const strata_block *block, uint64_t stream, strata_access access);

/* A use by that stream was recorded; with `noted` false, it may have been. */
void model_record_use(model_block *block, uint64_t stream, bool noted);

/* ---- contents ---- */

/* Allocates memory for comparing reads. Called once. */
void model_open_memory(void);

/* Makes room for the reads and writes of `uses` submissions. May wait for the device, so it comes before the first
 * prepare. */
void model_make_room(size_t uses);

/* Whether there is that room already. */
bool model_has_room(size_t uses);

/* A new seed for each part that is written; no two patterns share words. */
uint64_t model_next_seed(void);

/* Submits work that reads, or writes, or both. */
void model_submit(model_block *block, CUstream stream, strata_access access);

/* Submits a copy of the known first part of one block to the other. */
void model_submit_copy(model_block *to, const model_block *from, CUstream stream);

/* Waits for the device and compares everything that was read. */
void model_verify(void);

/* Checks a runtime's usage against the model. */
void model_check_usage(const model_runtime *runtime);

#endif
