// A law of one's own: half a window for every round trip with a mark or a loss, one packet more for every other.
//   syncline simulate flows -c fat-tree-1024 --load 0.3 --duration 200us --transport dctcp --law examples/laws/aimd.cpp
#include <algorithm>

#include "packet_law.h"

SYNCLINE_LAW(news, state) {
    double& last_cut_s = state->memory[0];
    const double packet = news->payload_bytes;
    if (news->what == SYNCLINE_START) {
        state->window_bytes = 10 * packet;
        last_cut_s = -1;
        return;
    }
    const bool bad = news->what != SYNCLINE_ACK || news->marked_packets > 0;
    if (bad && news->now_s - last_cut_s > news->smoothed_rtt_s) {
        state->window_bytes = std::max(state->window_bytes / 2, packet);
        last_cut_s = news->now_s;
    } else if (!bad && news->flying_bytes + news->acked_bytes + packet >= state->window_bytes) {
        state->window_bytes += packet * news->acked_bytes / state->window_bytes;
    }
}
