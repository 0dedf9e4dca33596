/* A graph in one line: its nodes in the driver's order. */
#ifndef STRATA_TESTS_ANSWERS_GRAPH_TEXT_H
#define STRATA_TESTS_ANSWERS_GRAPH_TEXT_H

#include "ask.h"

/* Answers with a word for each node: its kind and, in brackets, the indices of the nodes that it depends on: "memset()
 * kernel(0) empty(0,1)". */
void ask_graph(CUgraph graph, const char *question);

/* The kind of a node, or the name of the error. */
const char *node_kind(CUgraphNode node);

#endif
