/* Which frame is taken where. */
#include "service/worker/worker.h"

bool worker_take_frame(worker *self, const worker_frame *frame)
{
    switch (frame->head.kind) {
    case WIRE_ALLOCATE:
        return worker_take_allocate(self, frame);
    case WIRE_COPY_TO_HOST:
    case WIRE_COPY_FROM_HOST:
        return worker_take_copy(self, frame);
    case WIRE_LOAD:
        return worker_take_load(self, frame);
    case WIRE_LAUNCH:
    case WIRE_BLAS:
    case WIRE_COPY:
    case WIRE_FILL:
        return worker_take_work(self, frame);
    case WIRE_MAKE_GRAPH:
        return worker_take_graph(self, frame);
    case WIRE_PLAY_GRAPH:
        return worker_take_play(self, frame);
    case WIRE_GRAPH_END:
        return worker_drop_graph(self, frame);
    case WIRE_NOTHING:
        return worker_take_nothing(self, frame);
    case WIRE_BUFFER:
        return worker_take_buffer(self, frame);
    case WIRE_BUFFER_END:
        return worker_drop_buffer(self, frame);
    case WIRE_RELEASE:
        return worker_take_release(self, frame);
    case WIRE_QUESTION:
        return worker_take_question(self, frame);
    default:
        return false;
    }
}
