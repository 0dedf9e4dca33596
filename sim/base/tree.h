/* An ordered set of nodes that live inside the things they order: a treap whose priorities are hashed from the keys, so
 * that the same keys make the same tree. Nodes are ordered by key, then by tie; no two nodes of a tree share both. */
#ifndef STRATA_SIM_BASE_TREE_H
#define STRATA_SIM_BASE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_node {
    struct sim_node *left;
    struct sim_node *right;
    uint64_t key;
    uint64_t tie;
    uint64_t priority;
};

struct sim_tree {
    struct sim_node *root;
};

void sim_tree_insert(struct sim_tree *tree, struct sim_node *node, uint64_t key, uint64_t tie);
void sim_tree_remove(struct sim_tree *tree, struct sim_node *node);

/* The node with the greatest key that is at most `key`. */
struct sim_node *sim_tree_floor(const struct sim_tree *tree, uint64_t key);

/* The first node at or after (key, tie). */
struct sim_node *sim_tree_ceiling(const struct sim_tree *tree, uint64_t key, uint64_t tie);

static inline struct sim_node *sim_tree_first(const struct sim_tree *tree)
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
