/* Records displaced from cells, kept while a pending record may have to be judged against them: for each component a
 * tree by position. Those unordered with a record lie side by side there, between the last that comes before it and the
 * first that comes after it, so a late access meets those alone. */
#include "check/check.h"
#include <stdlib.h>

typedef struct history_entry {
    sim_node by_position;
    sim_access_record *record; /* held */
    uint64_t begin;
    uint64_t end;
    sim_access_kind touch;
} history_entry;

typedef struct sim_component_history {
    struct sim_component_history *next;
    sim_component *component; /* held; NULL: the host's */
    sim_tree entries;
    history_entry *newest;
} sim_component_history;

/* Those with entries. Guarded by sim.lock. */
static sim_history *histories;
static uint64_t entries_made;

static uint64_t position_of(const sim_access_record *record)
{
    return record->component ? record->at.position : record->order;
}

static history_entry *entry_of(sim_node *node)
{
    return (history_entry *)(void *)node;
}

static void link_history(sim_history *history)
{
    history->previous = NULL;
    history->next = histories;
    if (history->next)
        history->next->previous = history;
    histories = history;
}

static void unlink_history(sim_history *history)
{
    if (history->previous)
        history->previous->next = history->next;
    else
        histories = history->next;
    if (history->next)
        history->next->previous = history->previous;
}

static void free_entry(history_entry *entry)
{
    sim_access_record_drop(entry->record);
    free(entry);
    sim_check.other_bytes -= sizeof *entry;
}

static void drop_entry(sim_history *history, sim_component_history *of_component, history_entry *entry)
{
    sim_tree_remove(&of_component->entries, &entry->by_position);
    if (of_component->newest == entry)
        of_component->newest = NULL;
    free_entry(entry);
    history->count--;
}

/* Recursion is safe: the tree's depth is logarithmic. */
static void free_entries(sim_node *node)
{
    if (node) {
        free_entries(node->left);
        free_entries(node->right);
        free_entry(entry_of(node));
    }
}

static void drop_unneeded(sim_history *history)
{
    enum { LEAST = 64 };
    for (sim_component_history *of_component = history->components; of_component; of_component = of_component->next) {
        history_entry *entry = entry_of(sim_tree_first(&of_component->entries));
        while (entry) {
            uint64_t position = entry->by_position.key;
            uint64_t tie = entry->by_position.tie;
            if (!sim_access_record_open(entry->record))
                drop_entry(history, of_component, entry);
            entry = entry_of(sim_tree_ceiling(&of_component->entries, position, tie + 1));
        }
    }
    history->limit = history->count < LEAST ? LEAST : 2 * history->count;
}

static sim_component_history *history_of(sim_history *history, sim_component *component)
{
    sim_component_history *of_component = history->components;
    while (of_component && of_component->component != component)
        of_component = of_component->next;
    if (of_component)
        return of_component;
    of_component = calloc(1, sizeof *of_component);
    if (!of_component) {
        sim_check_give_up();
        return NULL;
    }
    of_component->component = component ? sim_component_hold(component) : NULL;
    of_component->next = history->components;
    history->components = of_component;
    sim_check.other_bytes += sizeof *of_component;
    return of_component;
}

/* Cells come in address order: the parts of one access coalesce again. */
static bool extend(sim_component_history *of_component, const sim_access_record *record, uint64_t begin, uint64_t end,
                   sim_access_kind touch)
{
    history_entry *newest = of_component->newest;
    if (!newest || newest->record != record || newest->touch != touch || newest->end != begin)
        return false;
    newest->end = end;
    return true;
}

void sim_history_add(sim_history *history, sim_access_record *record, uint64_t begin, uint64_t end,
                     sim_access_kind touch)
{
    if (!sim_access_record_open(record))
        return;
    sim_component_history *of_component = history_of(history, record->component);
    if (!of_component || extend(of_component, record, begin, end, touch))
        return;
    history_entry *entry = malloc(sizeof *entry);
    if (!entry) {
        sim_check_give_up();
        return;
    }
    if (history->count == 0)
        link_history(history);
    else if (history->count >= history->limit)
        drop_unneeded(history); /* perhaps all: it stays linked for the new entry */
    entry->record = sim_access_record_hold(record);
    entry->begin = begin;
    entry->end = end;
    entry->touch = touch;
    sim_tree_insert(&of_component->entries, &entry->by_position, position_of(record), ++entries_made);
    of_component->newest = entry;
    history->count++;
    sim_check.other_bytes += sizeof *entry;
}

/* Judges the access against an entry, if they overlap. True: they do. */
static bool judge_entry(const history_entry *entry, const sim_judged_access *access)
{
    uint64_t begin = entry->begin > access->begin ? entry->begin : access->begin;
    uint64_t end = entry->end < access->end ? entry->end : access->end;
    if (begin < end)
        sim_judge_pair(access, entry->record, entry->touch, begin, end);
    return begin < end;
}

/* Judges the last entries that come before the access only by waits for values: they are the first to lose that order.
 */
static void judge_last_known(const sim_component_history *of_component, const sim_judged_access *access, uint64_t asked,
                             uint64_t known)
{
    enum { MOST_TRIES = 16 };
    const history_entry *entry = known > asked ? entry_of(sim_tree_floor(&of_component->entries, known)) : NULL;
    for (int i = 0; i < MOST_TRIES && entry && entry->by_position.key > asked && !judge_entry(entry, access); i++)
        entry = entry_of(sim_tree_floor(&of_component->entries, entry->by_position.key - 1));
}

static void judge_component(const sim_component_history *of_component, const sim_judged_access *access)
{
    sim_component *component = of_component->component;
    uint64_t asked = component ? sim_access_record_asked(access->record, component) : access->record->order;
    uint64_t known = component ? sim_access_record_knows(access->record, component) : asked;
    judge_last_known(of_component, access, asked, known);
    const history_entry *entry = entry_of(sim_tree_ceiling(&of_component->entries, known + 1, 0));
    while (entry && !sim_access_record_surely_after(entry->record, access->record)) {
        bool first_after = sim_access_record_after(entry->record, access->record);
        if (judge_entry(entry, access) && first_after)
            break;
        entry = entry_of(sim_tree_ceiling(&of_component->entries, entry->by_position.key, entry->by_position.tie + 1));
    }
}

void sim_history_judge(const sim_history *history, const sim_judged_access *access)
{
    if (history->count == 0)
        return;
    for (const sim_component_history *of_component = history->components; of_component;
         of_component = of_component->next)
        judge_component(of_component, access);
}

void sim_history_clear(sim_history *history)
{
    if (history->count > 0) {
        unlink_history(history);
        history->count = 0;
    }
    while (history->components) {
        sim_component_history *of_component = history->components;
        free_entries(of_component->entries.root);
        history->components = of_component->next;
        sim_component_drop(of_component->component);
        free(of_component);
        sim_check.other_bytes -= sizeof *of_component;
    }
}

void sim_histories_clear(void)
{
    while (histories)
        sim_history_clear(histories);
}
