/* A treap: expected depth is logarithmic. */
#include "base/base.h"

static bool before(uint64_t key, uint64_t tie, const sim_node *node)
{
    return key < node->key || (key == node->key && tie < node->tie);
}

void sim_tree_insert(sim_tree *tree, sim_node *node, uint64_t key, uint64_t tie)
{
    node->key = key;
    node->tie = tie;
    node->priority = sim_mix(key + sim_mix(tie + 0x9e3779b97f4a7c15U));
    sim_node **link = &tree->root;
    while (*link && (*link)->priority >= node->priority)
        link = before(key, tie, *link) ? &(*link)->left : &(*link)->right;
    sim_node *below = *link;
    *link = node;
    sim_node **left = &node->left;
    sim_node **right = &node->right;
    while (below) {
        if (before(key, tie, below)) {
            *right = below;
            right = &below->left;
            below = below->left;
        } else {
            *left = below;
            left = &below->right;
            below = below->right;
        }
    }
    *left = NULL;
    *right = NULL;
}

void sim_tree_remove(sim_tree *tree, sim_node *node)
{
    sim_node **link = &tree->root;
    while (*link != node)
        link = before(node->key, node->tie, *link) ? &(*link)->left : &(*link)->right;
    sim_node *left = node->left;
    sim_node *right = node->right;
    while (left && right) {
        if (left->priority >= right->priority) {
            *link = left;
            link = &left->right;
            left = left->right;
        } else {
            *link = right;
            link = &right->left;
            right = right->left;
        }
    }
    *link = left ? left : right;
}

sim_node *sim_tree_floor(const sim_tree *tree, uint64_t key)
{
    sim_node *found = NULL;
    sim_node *node = tree->root;
    while (node) {
        if (node->key <= key) {
            found = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return found;
}

sim_node *sim_tree_ceiling(const sim_tree *tree, uint64_t key, uint64_t tie)
{
    sim_node *found = NULL;
    sim_node *node = tree->root;
    while (node) {
        if (node->key > key || (node->key == key && node->tie >= tie)) {
            found = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return found;
}
