/* The state of the graphs' room. */
#include "graph/graph.h"

sim_graph_state sim_graph;
