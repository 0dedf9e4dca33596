/* What captures become: graphs, which the program launches.
 *
 * The work that is captured writes and copies blocks of the model. What the program knows of a capture is the list of
 * its steps, and for each stream that takes part which of them come before what it captures next; a step that nothing
 * orders after one that it would race with is not captured. To the library a launch is one piece of work, which uses
 * all the blocks of the graph: the launch is bracketed like any other, and what is inside is the program's own to
 * order. The checker judges both. A graph one of whose blocks was freed is launched no more. */
#ifndef STRATA_FUZZ_GRAPHS_H
#define STRATA_FUZZ_GRAPHS_H

#include "fuzz/model.h"

/* Once, with the simulated driver open. */
void graphs_open(void);

/* A capture that this stream began: it has no steps so far. */
void graphs_begin(const model_stream *origin);

/* Captures work that is drawn from the input on a stream that takes part in a capture which is alive. */
void graphs_capture(model_stream *stream);

/* The capture is over. Its graph, NULL if it has none, is instantiated and kept to be launched if it does anything. */
void graphs_end_capture(const model_stream *origin, CUgraph graph);

/* For the player whose turn it is: launches a graph; ends one. */
void graphs_launch(void);
void graphs_drop(void);

/* Ends all of them. */
void graphs_drop_all(void);

#endif
