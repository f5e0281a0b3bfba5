/* A congestion control law of your own for syncline's packet engine.
 *
 *   #include "packet_law.h"
 *   SYNCLINE_LAW(news, state) {
 *       if (news->what == SYNCLINE_START) state->window_bytes = 10 * news->payload_bytes;
 *       ...
 *   }
 *
 * It is called when a connection starts, for every acknowledgement, and when packets are found to be lost. It may read
 * `news`, and change the window and the rate in `state` and the 16 numbers that it keeps there for each connection.
 * Version 1. Fields are only ever added at the end, and the version counts up. */
#ifndef SYNCLINE_PACKET_LAW_H
#define SYNCLINE_PACKET_LAW_H

#include <stdint.h>

#define SYNCLINE_LAW_VERSION 1

enum { SYNCLINE_START = 0, SYNCLINE_ACK = 1, SYNCLINE_LOSS = 2, SYNCLINE_TIMEOUT = 3 };

struct syncline_news {
    int32_t version;
    int32_t what;            /* SYNCLINE_START ... */
    double now_s;
    double rtt_s;            /* of the packet that is acknowledged; 0 where none is */
    double smoothed_rtt_s;   /* RFC 6298; 0: not measured yet */
    double base_rtt_s;       /* of the network, without queues */
    double line_Bps;         /* rate of the connection's port */
    double payload_bytes;    /* of a full packet */
    double acked_bytes;      /* acknowledged for the first time by this */
    double marked_packets;   /* of those that this acknowledges, how many carried a mark (ECN) */
    double flying_bytes;     /* sent, and neither acknowledged nor taken for lost */
    double hops;             /* links that the acknowledgement crossed */
};

struct syncline_state {
    double window_bytes;     /* at most so much in flight */
    double rate_Bps;         /* at most so fast; never above the line */
    double memory[16];       /* yours, of this connection; 0 at the start */
};

typedef void (*syncline_law)(const struct syncline_news*, struct syncline_state*);

#ifdef __cplusplus
#define SYNCLINE_LAW(news, state) \
    extern "C" __attribute__((visibility("default"))) void syncline_law_v1(const syncline_news* news, syncline_state* state)
#else
#define SYNCLINE_LAW(news, state) \
    __attribute__((visibility("default"))) void syncline_law_v1(const struct syncline_news* news, struct syncline_state* state)
#endif

#endif
