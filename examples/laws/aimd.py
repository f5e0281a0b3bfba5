"""The same law as aimd.cpp in Python: slow, to try things out."""

from typing import Any


def law(news: Any, state: Any) -> None:
    """Halve the window for every round trip with a mark or a loss; add a packet for every other."""
    packet = news.payload_bytes
    if news.what == 0:
        state.window_bytes = 10 * packet
        state.memory[0] = -1.0
        return
    bad = news.what != 1 or news.marked_packets > 0
    if bad and news.now_s - state.memory[0] > news.smoothed_rtt_s:
        state.window_bytes = max(state.window_bytes / 2, packet)
        state.memory[0] = news.now_s
    elif not bad and news.flying_bytes + news.acked_bytes + packet >= state.window_bytes:
        state.window_bytes += packet * news.acked_bytes / state.window_bytes
