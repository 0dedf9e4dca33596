/* An ordered set of nodes that live inside the things they order: a treap whose priorities are hashed from the keys, so
 * that the same keys make the same tree. Nodes are ordered by key, then by tie; no two nodes of a tree share both. */
#ifndef STRATA_SIM_BASE_TREE_H
#define STRATA_SIM_BASE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_node {
    struct sim_node *left;
    struct sim_node *right;
    uint64_t key;
    uint64_t tie;
    uint64_t priority;
} sim_node;

typedef struct sim_tree {
    sim_node *root;
} sim_tree;

void sim_tree_insert(sim_tree *tree, sim_node *node, uint64_t key, uint64_t tie);
void sim_tree_remove(sim_tree *tree, sim_node *node);

/* The node with the greatest key that is at most `key`. */
sim_node *sim_tree_floor(const sim_tree *tree, uint64_t key);

/* The first node at or after (key, tie). */
sim_node *sim_tree_ceiling(const sim_tree *tree, uint64_t key, uint64_t tie);

static inline sim_node *sim_tree_first(const sim_tree *tree)
{
    return sim_tree_ceiling(tree, 0, 0);
}

/* The scrambler of the simulation: a good 64-bit hash of x. */
static inline uint64_t sim_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9U;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

#endif
