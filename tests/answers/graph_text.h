/* What graphs look like, in one line: their nodes in the order in which the driver lists them. */
#ifndef STRATA_TESTS_ANSWERS_GRAPH_TEXT_H
#define STRATA_TESTS_ANSWERS_GRAPH_TEXT_H

#include "ask.h"

/* Answers with one word a node, its kind and, in brackets, the places in the list of those that it depends on:
 * "memset() kernel(0) empty(0,1)". */
void ask_graph(CUgraph graph, const char *question);

/* The kind of a node, or the name of the error. */
const char *node_kind(CUgraphNode node);

#endif
