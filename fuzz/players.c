/* Threads that run one at a time, each with a condition. */
#include "fuzz/players.h"

#include "fuzz/begin.h"

#include <pthread.h>

typedef struct player {
    pthread_t thread;
    bool there;        /* the dealer's alone */
    pthread_cond_t go; /* signaled when the player may run */
    void (*act)(void); /* the current call, NULL when it has returned; guarded by lock */
    bool leave;        /* guarded by lock */
} player;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static player players[PLAYERS];
static unsigned now; /* changed by the dealer while no other player runs */

static void *play(void *data)
{
    player *self = data;
    test_make_current();
    pthread_mutex_lock(&lock);
    while (!self->leave) {
        if (!self->act) {
            pthread_cond_wait(&self->go, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        self->act();
        pthread_mutex_lock(&lock);
        self->act = NULL;
        pthread_cond_signal(&done);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void start(player *self)
{
    *self = (player){.there = true};
    assert_int_equal(pthread_cond_init(&self->go, NULL), 0);
    assert_int_equal(pthread_create(&self->thread, NULL, play, self), 0);
}

void players_do(unsigned which, void (*act)(void))
{
    player *self = &players[which];
    now = which;
    if (which == 0) {
        act();
        return;
    }
    if (!self->there)
        start(self);
    pthread_mutex_lock(&lock);
    self->act = act;
    pthread_cond_signal(&self->go);
    while (self->act)
        pthread_cond_wait(&done, &lock);
    pthread_mutex_unlock(&lock);
    now = 0;
}

unsigned players_now(void)
{
    return now;
}

bool players_has(unsigned which)
{
    return which == 0 || players[which].there;
}

void players_leave(unsigned which)
{
    player *self = &players[which];
    if (which == 0 || !self->there)
        return;
    pthread_mutex_lock(&lock);
    self->leave = true;
    pthread_cond_signal(&self->go);
    pthread_mutex_unlock(&lock);
    assert_int_equal(pthread_join(self->thread, NULL), 0);
    pthread_cond_destroy(&self->go);
    self->there = false;
}
