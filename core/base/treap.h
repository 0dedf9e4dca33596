/* Ordered sets of numbered nodes, as treaps. Priorities are hashes of numbers: equal sets are equal trees. A set is its
 * root's number; 0: empty. Each function is inlined with the order that it is given. */
#ifndef STRATA_CORE_BASE_TREAP_H
#define STRATA_CORE_BASE_TREAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct strata_treap_node {
    uint32_t left, right; /* 0: none */
} strata_treap_node;

typedef struct strata_treap_order {
    strata_treap_node *(*node)(const void *nodes, uint32_t number);
    bool (*is_before)(const void *nodes, uint32_t number, const void *key, strata_treap_node **node); /* and finds it */
} strata_treap_order;

#define STRATA_TREAP static inline __attribute__((always_inline))

STRATA_TREAP uint32_t strata_treap_priority(uint32_t number)
{
    return number * UINT32_C(0x9e3779b1) ^ (number * UINT32_C(0x85ebca6b)) >> 15;
}

/* The link that a search for a key follows from a node. */
STRATA_TREAP uint32_t *strata_treap_link(strata_treap_order order, const void *nodes, uint32_t number, const void *key)
{
    strata_treap_node *node;
    return order.is_before(nodes, number, key, &node) ? &node->right : &node->left;
}

/* Puts a node in: its links, and its key, which stays as it is while the node is in the set. */
STRATA_TREAP void strata_treap_enter(uint32_t *root, uint32_t number, strata_treap_node *entered, const void *key,
                                     strata_treap_order order, const void *nodes)
{
    const uint32_t priority = strata_treap_priority(number);
    while (*root && strata_treap_priority(*root) >= priority)
        root = strata_treap_link(order, nodes, *root, key);
    uint32_t *before = &entered->left, *behind = &entered->right;
    for (uint32_t cut = *root; cut;) {
        strata_treap_node *node;
        if (order.is_before(nodes, cut, key, &node)) {
            *before = cut;
            before = &node->right;
            cut = node->right;
        } else {
            *behind = cut;
            behind = &node->left;
            cut = node->left;
        }
    }
    *before = *behind = 0;
    *root = number;
}

/* Takes a node of the set out. */
STRATA_TREAP void strata_treap_leave(uint32_t *root, uint32_t number, const strata_treap_node *gone, const void *key,
                                     strata_treap_order order, const void *nodes)
{
    while (*root != number)
        root = strata_treap_link(order, nodes, *root, key);
    uint32_t left = gone->left, right = gone->right;
    while (left && right) {
        const bool takes_left = strata_treap_priority(left) >= strata_treap_priority(right);
        *root = takes_left ? left : right;
        strata_treap_node *node = order.node(nodes, *root);
        if (takes_left) {
            root = &node->right;
            left = node->right;
        } else {
            root = &node->left;
            right = node->left;
        }
    }
    *root = left ? left : right;
}

/* The first that is not before a key; 0: none. */
STRATA_TREAP uint32_t strata_treap_from(uint32_t root, const void *key, strata_treap_order order, const void *nodes)
{
    uint32_t found = 0;
    while (root) {
        strata_treap_node *node;
        if (order.is_before(nodes, root, key, &node)) {
            root = node->right;
        } else {
            found = root;
            root = node->left;
        }
    }
    return found;
}

#endif
