#include "graph/graph.h"

sim_graph_state sim_graph;
