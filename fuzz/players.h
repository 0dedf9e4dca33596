/* Players: threads that take turns. Exactly one runs at any time and hands over to the next, so an input means the same
 * run each time, and still each player has what a thread has of its own: caches, pins, a default stream, an end. */
#ifndef STRATA_FUZZ_PLAYERS_H
#define STRATA_FUZZ_PLAYERS_H

#include <stdbool.h>

enum { PLAYERS = 3 };

/* Runs act() as the player and returns when it is done. Player 0 is the thread that calls this; the others' threads
 * begin when they are first needed, with the device's context current. From that one thread only. */
void players_do(unsigned player, void (*act)(void));

/* The player whose turn it is: within act(), that player; else 0. */
unsigned players_now(void);

/* Whether the player has a thread now. */
bool players_has(unsigned player);

/* Ends the thread of a player other than 0, if it has one; a later turn begins with a new one. */
void players_leave(unsigned player);

#endif
