/* Graphs made by captures, which the program launches.
 *
 * Captured work writes and copies blocks of the model. The program keeps a list of a capture's steps, and for each of
 * its streams the steps that come before its next work; a step that would race with another is not captured. To the
 * library a launch is one piece of work that uses all the blocks of the graph, bracketed like any other; the program
 * orders the work inside. The checker judges both. A graph with a freed block is not launched again. */
#ifndef STRATA_FUZZ_GRAPHS_H
#define STRATA_FUZZ_GRAPHS_H

#include "fuzz/model.h"

/* Called once, with the simulated driver open. */
void graphs_open(void);

/* This stream began a capture, which has no steps yet. */
void graphs_begin(const model_stream *origin);

/* Captures work, drawn from the input, on a stream of a live capture. */
void graphs_capture(model_stream *stream);

/* The capture has ended. Its graph (NULL: none) is instantiated and kept for launches, unless it is empty. */
void graphs_end_capture(const model_stream *origin, CUgraph graph);

/* On the player's thread: launches a graph; destroys one. */
void graphs_launch(void);
void graphs_drop(void);

/* Destroys all graphs. */
void graphs_drop_all(void);

#endif
