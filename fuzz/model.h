/* A plain model of what a program of calls does: which runtimes, streams and blocks there are, what each block holds,
 * and so what every call has to answer.
 *
 * Contents are patterns (driver/kernels/kernels.h) with a seed of their own for each write. They are read back in the
 * order in which the program's calls put the reads, by kernels and by copies, and compared when the device is waited
 * for; so a wait that is missing, or memory that is handed out too early, shows itself as wrong bytes. */
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
    USES = 6,          /* between their prepare and their finish */
    PIECES = 2,        /* of a block, with patterns of their own */
    EDGE = 4096,       /* bytes of a copy, and of either end of a large block */
    WHOLE = 64 << 10,  /* the largest block that is written in one piece */
    LARGEST = 4 << 20, /* bytes that are asked for in earnest */
};

typedef enum stream_kind { POOL, REGISTERED, UNKNOWN, ZERO, LEGACY, PER_THREAD } stream_kind;

typedef enum model_capture { CAPTURE_NONE, CAPTURE_ALIVE, CAPTURE_DEAD } model_capture;

typedef struct model_stream {
    CUstream handle;
    stream_kind kind;
    bool blocking;         /* synchronizes with the legacy stream */
    model_capture capture; /* by the program, see fuzz/captures.h; its owner and mode if there is one */
    unsigned capturer;
    CUstreamCaptureMode mode;
    uint64_t origin; /* of the capture: the number of the stream that began it, perhaps this one */
    uint32_t behind; /* which steps of the capture come before what this stream captures next, see fuzz/graphs.h */
    uint64_t number; /* of no other stream, whatever the handle */
    unsigned owner;  /* POOL, REGISTERED: which runtime; PER_THREAD: which player */
} model_stream;

typedef struct model_runtime {
    strata_runtime *handle; /* NULL: there is none */
    bool ordered;           /* the stack allocates in stream order */
    bool limited;           /* the stack may reserve only so much */
    bool aligns;            /* to more than 256 bytes, where that is asked for */
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
    model_piece pieces[PIECES]; /* what it holds, as far as that is known */
    size_t piece_count;
    uint64_t alloc_stream; /* number of the stream on which it was allocated */
    bool home_known;       /* when it was allocated */
    uint64_t only;         /* number of the one stream that ever used it; 0 if several did */
    bool saw_legacy;       /* the legacy stream has allocated or used it */
    model_touch touch;     /* whether a use was noted since it was allocated */
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
    bool surely;     /* the stream was captured then, and is still */
} model_held;

/* When the work of a use that is under way is submitted. */
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

/* Makes a call that meets the trouble that is planned, and checks its answer: the status that is wanted, or one that
 * the trouble explains. Whether it was success. */
#define did(call, want) (trouble_begin(), model_did(trouble_end(call), (want), #call, __FILE__, __LINE__))
bool model_did(strata_status got, strata_status want, const char *call, const char *file, int line);

/* The same of a call about a stream and, unless it is NULL, a block, which a capture may refuse: fuzz/captures.h. */
#define did_beside(call, want, stream, block) \
    (trouble_begin(), model_did_beside(trouble_end(call), (want), (stream), (block), #call, __FILE__, __LINE__))

bool model_did_beside(strata_status got, strata_status want, const model_stream *stream, const model_block *block,
                      const char *call, const char *file, int line);

/* ---- picking what an operation is about ---- */

model_runtime *model_pick_runtime(void);
model_block *model_pick_block(void);                      /* NULL if there is none */
model_block *model_pick_block_of(unsigned runtime);       /* the same of one runtime */
const model_stream *model_pick_stream(void);              /* one that the player at hand may name */
const model_stream *model_stream_of(uint64_t number);     /* NULL if it is closed */
const model_stream *model_player_stream(uint64_t number); /* the same if the player at hand may name it */
model_block *model_block_of(strata_block_id id);          /* NULL if it is not live */
strata_access model_pick_access(void);
size_t model_pick_size(void);

/* ---- runtimes and streams ---- */

/* Makes a runtime of a stack that is drawn from the input. False after trouble. */
bool model_make_runtime(unsigned which);

/* Ends a runtime without blocks and taken streams. */
void model_end_runtime(unsigned which);

void model_open_stream(stream_kind kind, unsigned owner);

/* Gives the stream back, unregisters it, destroys it: what its kind asks for. */
void model_close_stream(size_t which);

bool model_is_legacy(const model_stream *stream);
bool model_is_known(const model_stream *stream);
bool model_is_known_handle(CUstream handle);

/* ---- blocks ---- */

/* A block that was allocated: apart from all others. */
model_block *model_enter(const strata_block *block, unsigned runtime, const model_stream *stream);

/* A block that was freed. */
void model_leave(model_block *block);

/* Whether a use of the block is under way. */
bool model_is_pinned(const strata_block *block);

/* Whether work with this access on this stream could meet that of a use under way, with nothing to order the two. */
bool model_races(const strata_block *block, uint64_t stream, strata_access access);

/* A use by that stream was noted, or, if `noted` is false, may have been. */
void model_note(model_block *block, uint64_t stream, bool noted);

/* ---- contents ---- */

/* Memory that the reads are compared in. Once. */
void model_open_memory(void);

/* Makes sure that there is room for what `uses` submissions read and write; may wait for the device, so it comes before
 * the first prepare. */
void model_make_room(size_t uses);

/* Whether there is that room already. */
bool model_has_room(size_t uses);

/* Another seed for each piece that is ever written; no two patterns overlap in their words. */
uint64_t model_next_seed(void);

/* Submits work that reads, or writes, or both. */
void model_submit(model_block *block, CUstream stream, strata_access access);

/* Submits a copy of what is known at the front of one block to the other. */
void model_submit_copy(model_block *to, const model_block *from, CUstream stream);

/* Waits for the device and compares everything that was read. */
void model_verify(void);

/* What a runtime says of its bytes is what the model says. */
void model_check_usage(const model_runtime *runtime);

#endif
