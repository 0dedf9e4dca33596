/* Captures of streams. The program begins and ends them; the library must work beside them. A capture forks to streams
 * that wait for its events; they may be joined before its end or not. fuzz/graphs.h has the captured work and its
 * graphs.
 *
 * A captured stream refuses every use, and defers frees. While a blocking stream is captured, no call may touch the
 * legacy stream: calls that need it are refused or deferred, and the program itself submits nothing to it. After every
 * step each capture must still be alive, unless the program has invalidated it itself. */
#ifndef STRATA_FUZZ_CAPTURES_H
#define STRATA_FUZZ_CAPTURES_H

#include "fuzz/model.h"
#include "fuzz/operations.h"

/* Called once, with the simulated driver open and its context current. */
void captures_open(void);

/* The operation about captures that the rest of an operation's byte chooses. */
const operation *captures_operation(unsigned value);

bool captures_any(void);
bool captures_beside_legacy(void);

/* Whether the program may submit work to this stream now. */
bool captures_may_submit(const model_stream *stream);

/* Whether a call about the stream and, unless it is NULL, the block may be refused because it needs the legacy stream.
 */
bool captures_may_refuse(const model_stream *stream, const model_block *block);

/* Records a free on the stream: it is deferred if the stream is captured, and may be beside the legacy stream. */
void captures_record_free(const model_block *block, const model_stream *stream);

/* Whether frees of the runtime surely, or perhaps, wait for the end of a capture. */
bool captures_surely_hold(unsigned runtime);
bool captures_perhaps_hold(unsigned runtime);

/* For the dealer. Ends the capture of a stream, the captures that a player began, or all; captures_end_all also waits
 * for the device, compares what was read, and tells the library that all captures have ended. */
void captures_end(model_stream *stream);
void captures_end_of(unsigned player);
void captures_end_all(void);

/* For the dealer, before a stream is destroyed: completes the frees made on it while it was captured. */
void captures_leave_stream(const model_stream *stream);

/* Lets the thread make calls that would invalidate other captures; the second function restores the mode. */
CUstreamCaptureMode captures_relax(void);
void captures_restore(CUstreamCaptureMode mode);

/* Waits for a stream without invalidating other captures. */
void captures_synchronize(CUstream stream);

/* Checks after each step: captures are alive; the acting thread's capture mode and current context are unchanged. */
void captures_check_alive(void);
void captures_check_thread(void);

/* Called when the player's thread, or the program, has ended. */
void captures_forget_player(unsigned player);

#endif
