/* Captures of streams, which the program begins and ends and the library is only to live beside. They fork to other
 * streams, by an event that these wait for, and are joined or not when they end; what they capture, and what becomes of
 * that, is in fuzz/graphs.h.
 *
 * A stream that is being captured refuses every use, and takes frees, which wait. While a blocking stream is captured
 * no call may touch the legacy stream: what needs it is refused or waits, and the program itself submits nothing there.
 * After every step each capture must still be alive, unless the program has killed it by a call of its own. */
#ifndef STRATA_FUZZ_CAPTURES_H
#define STRATA_FUZZ_CAPTURES_H

#include "fuzz/model.h"
#include "fuzz/operations.h"

/* Once, with the simulated driver open and its context current. */
void captures_open(void);

/* The operations about captures, of which the rest of an operation's byte chooses. */
const operation *captures_operation(unsigned value);

bool captures_any(void);
bool captures_beside_legacy(void);

/* Whether the program may submit work to this stream now. */
bool captures_may_submit(const model_stream *stream);

/* Whether a call about the stream and, if there is one, the block may be refused for the legacy stream's sake. */
bool captures_may_refuse(const model_stream *stream, const model_block *block);

/* A block is freed on the stream: the free waits if the stream is captured, and may wait beside the legacy stream. */
void captures_note_free(const model_block *block, const model_stream *stream);

/* Whether frees of the runtime are surely, or perhaps, waiting for the end of a capture. */
bool captures_surely_hold(unsigned runtime);
bool captures_perhaps_hold(unsigned runtime);

/* For the dealer: ends the capture of a stream, those that a player has begun, or all; the last also waits for the
 * device, compares what was read, and says that all captures have ended. */
void captures_end(model_stream *stream);
void captures_end_of(unsigned player);
void captures_settle(void);

/* Before a stream is destroyed: what was freed on it while it was captured is settled. For the dealer. */
void captures_leave_stream(const model_stream *stream);

/* Lets the thread make calls that the captures of others would not survive; the second undoes it. */
CUstreamCaptureMode captures_relax(void);
void captures_restore(CUstreamCaptureMode mode);

/* Waits for a stream, as a program does that minds the captures of others. */
void captures_synchronize(CUstream stream);

/* What must hold after each step: captures are alive; and on the thread that acted, its capture mode and its current
 * context are as they were. */
void captures_check_alive(void);
void captures_check_thread(void);

/* The player's thread has ended, or the program has. */
void captures_forget_player(unsigned player);

#endif
