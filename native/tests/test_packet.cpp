// The packet engine alone: closed forms on a handful of ports, all transports, bytes accounted for.
#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../src/packet/calendar.hpp"
#include "../src/packet/routes.hpp"
#include "check.hpp"
#include "syncline/packet.hpp"

using namespace syncline::packet;

namespace {

constexpr std::int64_t kForever = (std::int64_t{1} << 62) - 1;

// `num` endpoints on one switch, 50 GB/s and 1 us a cable.
struct Star {
    std::vector<std::int32_t> src, dst, back, region{0};
    std::vector<double> rate, loss, buffer{64e6};
    std::vector<std::int64_t> latency;
    std::vector<std::uint8_t> hops;
    std::vector<std::int32_t> port, goal, slot, over, wait_for;
    std::vector<std::uint8_t> profile;
    std::vector<std::uint32_t> label;
    std::vector<double> cap;
    std::vector<std::int64_t> bytes, delay, start, wait_start{0};
    std::vector<std::int64_t> path_start{0}, way_start;
    std::vector<std::int32_t> way_port;
    Setup setup;

    explicit Star(int num, double lost = 0) {
        for (int e = 0; e < num; ++e) {
            for (const bool up : {true, false}) {
                src.push_back(up ? -1 - e : 0);
                dst.push_back(up ? 0 : -1 - e);
                back.push_back(2 * e + (up ? 1 : 0));
                rate.push_back(50e9);
                loss.push_back(lost);
                latency.push_back(1'000'000);
                hops.push_back(1);
            }
        }
        setup.num_endpoints = num;
        setup.profiles.resize(1);
        setup.classes.resize(2);
        setup.classes[0].alpha = 1e6;
    }
    void message(int from, int to, std::int64_t size, int after = -1) {
        port.push_back(2 * from);
        goal.push_back(to);
        slot.push_back(static_cast<int>(slot.size()));
        profile.push_back(0);
        label.push_back(static_cast<std::uint32_t>(label.size()));
        cap.push_back(0);
        over.push_back(static_cast<int>(over.size()));
        bytes.push_back(size);
        delay.push_back(0);
        start.push_back(0);
        if (after >= 0) wait_for.push_back(after);
        wait_start.push_back(static_cast<std::int64_t>(wait_for.size()));
    }
    Setup& ready() {
        setup.port_src = src;
        setup.port_dst = dst;
        setup.port_Bps = rate;
        setup.port_latency_ps = latency;
        setup.port_hops = hops;
        setup.port_loss = loss;
        setup.port_back = back;
        setup.switch_buffer_bytes = buffer;
        setup.switch_region = region;
        setup.flow_port = port;
        setup.flow_dst = goal;
        setup.flow_profile = profile;
        setup.flow_slot = slot;
        setup.flow_label = label;
        setup.flow_cap_Bps = cap;
        setup.flow_way_start = way_start;
        setup.flow_way_port = way_port;
        setup.path_start = path_start;
        setup.task_over = over;
        setup.task_bytes = bytes;
        setup.task_delay_ps = delay;
        setup.task_start_ps = start;
        setup.wait_start = wait_start;
        setup.wait_for = wait_for;
        return setup;
    }
};

// Credits come back while a packet is taken in, and the pool may grow under it (it was read after that).
void the_pool_may_grow_while_a_packet_is_received() {
    Star star(12);
    star.setup.profiles[0].payload_bytes = 65536;
    star.setup.credits = true;
    star.setup.credit_bytes = 3 * 66000;
    for (int from = 1; from < 12; ++from) star.message(from, 0, 2'000'000);
    for (int from = 0; from < 11; ++from) star.message(from, from + 1, 2'000'000);
    Engine engine(star.ready());
    State state = State::running;
    while (state == State::running) state = engine.advance(kForever, 100'000);
    CHECK(state == State::finished);
    CHECK(engine.counters().delivered_bytes == 22 * 2'000'000);
}

// A repeat that is lost again is found by what was sent after it, not by the timer.
void lost_repeats_are_found() {
    Star star(2, 0.05);
    Profile& profile = star.setup.profiles[0];
    profile.recovery = static_cast<int>(Recovery::selective);
    profile.timeout_ps = 1'000'000'000;
    profile.tail_probe = true;
    star.message(0, 1, 20'000'000);
    Engine engine(star.ready());
    State state = State::running;
    while (state == State::running) state = engine.advance(kForever, 100'000);
    CHECK(state == State::finished);
    CHECK(engine.counters().timeouts <= 4);  // of the last packets, whose probe may be lost as well
    CHECK(engine.counters().resent_packets > 400);
    CHECK(engine.now_ps() < 20'000'000'000);
}

void calendar_keeps_order() {
    Calendar calendar(8);
    std::uint64_t state = 1;
    const auto draw = [&state](std::uint64_t below) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<Time>((state >> 20) % below);
    };
    for (std::uint32_t i = 0; i < 2000; ++i) calendar.push(draw(i % 3 == 0 ? 40'000'000'000ull : 5'000'000), i);
    Time last = 0;
    int seen = 0;
    bool ordered = true;
    while (calendar.next(kForever)) {
        const Time at = calendar.time();
        ordered = ordered && at >= last;
        last = at;
        calendar.pop();
        ++seen;
        if (seen < 3000) calendar.push(at + draw(seen % 5 == 0 ? 9'000'000'000ull : 1'000), 5000 + static_cast<std::uint32_t>(seen));
    }
    CHECK(ordered);
    CHECK(seen == 2000 + 2999);
    CHECK(calendar.pending() == 0);
    Calendar later(4);
    later.push(100, 1);
    later.push(1'000'000'000'000, 2);
    CHECK(later.next(50) == false);
    CHECK(later.next(100));
    later.pop();
    CHECK(!later.next(999'999'999'999));
    CHECK(later.next(kForever) && later.time() == 1'000'000'000'000);
}

// However many fall into one bucket and however unevenly, it is the order of a plain sort by (time, number).
void crowded_buckets_are_sorted() {
    for (const int width_bits : {4, 7, 12, 18}) {
        Calendar calendar(width_bits);
        std::vector<std::pair<Time, std::uint32_t>> rows;
        std::uint64_t state = 7;
        for (std::uint32_t i = 0; i < 4000; ++i) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            const Time spread = Time{2} << width_bits;
            const Time at = i % 4 == 0 ? 5 : static_cast<Time>((state >> 20) % static_cast<std::uint64_t>(spread));
            rows.emplace_back(at, static_cast<std::uint32_t>(state >> 40) % 1000);
        }
        for (const auto& [at, what] : rows) calendar.push(at, what);
        std::sort(rows.begin(), rows.end());
        bool same = true;
        for (const auto& [at, what] : rows) {
            same = same && calendar.next(kForever) && calendar.time() == at && calendar.what() == what;
            calendar.pop();
        }
        CHECK(same && !calendar.next(kForever));
    }
}

// Whatever is foreseen, and whatever falls into what has been opened: the order is that of (time, number).
void buckets_may_be_opened_early() {
    for (const int width_bits : {4, 10, 18}) {
        Calendar calendar(width_bits);
        std::set<std::pair<Time, std::uint32_t>> rows;
        std::uint64_t state = 3;
        const auto draw = [&state](std::uint64_t below) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            return static_cast<Time>((state >> 20) % below);
        };
        std::uint32_t number = 0;
        const auto push = [&](Time now) {
            const std::uint64_t ahead[] = {3, 500, 90'000, 4'000'000, 7'000'000'000};
            const Time at = now + draw(ahead[draw(5)]);
            calendar.push(at, number);
            rows.emplace(at, number++);
        };
        for (int i = 0; i < 300; ++i) push(0);
        bool same = true;
        while (!rows.empty() && same) {
            same = calendar.next(kForever);
            if (draw(3) == 0) calendar.foresee(static_cast<std::size_t>(draw(60)));
            const auto [at, what] = *rows.begin();
            same = same && calendar.time() == at && calendar.what() == what;
            calendar.pop();
            rows.erase(rows.begin());
            for (Time more = number < 20'000 ? draw(3) : 0; more > 0; --more) push(at);
        }
        CHECK(same && number >= 300 && !calendar.next(kForever) && calendar.pending() == 0);
    }
}

void a_window_of_bits_moves_and_grows() {
    Bits bits;
    for (const u32 seq : {0u, 63u, 64u, 255u, 256u, 3000u}) bits.set(seq);
    bool right = true;
    for (u32 seq = 0; seq < 4000; ++seq) {
        const bool set = seq == 0 || seq == 63 || seq == 64 || seq == 255 || seq == 256 || seq == 3000;
        right = right && bits.test(seq) == set;
    }
    CHECK(right);
    bits.forget(256);
    CHECK(!bits.test(64) && bits.test(256) && bits.block(256) == 1 && bits.test(3000));
    bits.clear(3000);
    bits.forget(1 << 20);
    bits.set((1 << 20) + 5000);
    CHECK(!bits.test(3000) && bits.test((1 << 20) + 5000) && !bits.test((1 << 20) + 4999));
}

void one_packet_takes_its_time() {
    Star star(2);
    star.setup.profiles[0].header_bytes = 0;
    star.message(0, 1, 4096);
    Engine engine(star.ready());
    CHECK(engine.advance(kForever, 1000) == State::finished);
    // Two links of 1 us, and the packet twice on the wire: 4096 B at 50 GB/s is 81.92 ns.
    CHECK(engine.end_ps()[0] == 2 * (1'000'000 + 81'920));
    Star quick(2);
    quick.setup.profiles[0].header_bytes = 0;
    quick.setup.cut_through = true;
    quick.message(0, 1, 4096);
    Engine through(quick.ready());
    through.advance(kForever, 1000);
    CHECK(through.end_ps()[0] == 2'000'000 + 81'920 + 1'280);
}

void messages_wait() {
    Star star(3);
    star.setup.profiles[0].header_bytes = 0;
    star.message(0, 1, 4096);
    star.message(1, 2, 4096, 0);
    Engine engine(star.ready());
    engine.advance(kForever, 1000);
    CHECK(engine.begin_ps()[1] == engine.end_ps()[0]);
    // The second message leaves behind the acknowledgement of the first: 64 B.
    CHECK(engine.end_ps()[1] == 2 * engine.end_ps()[0] + 1'280);
}

void ways_lead_where_they_should() {
    Star star(3);
    star.message(0, 1, 4096);
    star.way_start = {0, 1};
    star.way_port = {3};
    Engine engine(star.ready());
    CHECK(engine.advance(kForever, 1000) == State::finished);
    CHECK(engine.last_sent_ps()[0] == 0);
    star.way_port = {5};
    const auto text = check::thrown<std::invalid_argument>([&] { Engine lost(star.ready()); });
    CHECK(text.find("end of the way of connection 0") != std::string::npos);
}

void incast_fills_the_link(bool lossless, bool credits) {
    Star star(9);
    star.setup.classes[1].lossless = lossless;
    star.setup.classes[1].pause_bytes = lossless ? 20'000 : 0;
    star.setup.headroom_bytes = 4'000'000;
    star.setup.credits = credits;
    star.setup.credit_bytes = 200'000;
    for (int sender = 1; sender < 9; ++sender) star.message(sender, 0, 1'000'000);
    Engine engine(star.ready());
    CHECK(engine.advance(kForever, 1'000'000) == State::finished);
    const double bound = 8.0 * (1e6 + 245 * 66) / 50e9 * 1e12;
    const double end = static_cast<double>(*std::max_element(engine.end_ps().begin(), engine.end_ps().end()));
    CHECK(end >= bound);
    CHECK(end < 1.03 * bound);
    CHECK(engine.counters().drops == 0);
    CHECK(engine.counters().lossless_drops == 0);
    CHECK(lossless == (engine.counters().pauses > 0));
    CHECK(engine.counters().delivered_bytes == 8'000'000);
}

void every_transport_ends(int transport, int recovery, bool lossy) {
    Star star(5, lossy ? 0.01 : 0.0);
    Profile& profile = star.setup.profiles[0];
    profile.transport = transport;
    profile.recovery = recovery;
    profile.window_bytes = transport == 0 || transport == 1 || transport == 5 ? 1e18 : 200'000;
    profile.timeout_ps = 100'000'000;
    profile.slot_ps = transport == 9 ? 5'000'000 : 0;
    profile.num_slots = 4;
    star.setup.classes[1].mark_low_bytes = star.setup.classes[1].mark_high_bytes = 40'000;
    star.setup.classes[1].trims = transport == 7;
    star.buffer[0] = 300'000;
    for (int sender = 1; sender < 5; ++sender) star.message(sender, 0, 300'001);
    Engine engine(star.ready());
    CHECK(engine.advance(kForever, 3'000'000) == State::finished);
    CHECK(engine.counters().delivered_bytes == 4 * 300'001);
    Engine again(star.ready());
    again.advance(kForever, 3'000'000);
    CHECK(again.counters().events == engine.counters().events);
    CHECK(again.now_ps() == engine.now_ps());
}

// Four switches, each joined to each by a cable of a fifth of a port's rate: detours double what the one cable carries.
void packets_take_detours(Routing routing, std::vector<std::int32_t> region) {
    Star star(4);
    star.region = std::move(region);
    star.buffer.assign(4, 64e6);
    for (int e = 0; e < 4; ++e) star.dst[2 * e] = star.src[2 * e + 1] = e;
    for (int a = 0; a < 4; ++a) {
        for (int b = 0; b < 4; ++b) {
            if (a == b) continue;
            star.back.push_back(8 + 3 * b + (a < b ? a : a - 1));
            star.src.push_back(a);
            star.dst.push_back(b);
            star.rate.push_back(10e9);
            star.loss.push_back(0);
            star.latency.push_back(1'000'000);
            star.hops.push_back(1);
        }
    }
    star.setup.routing = static_cast<int>(routing);
    star.setup.profiles[0].recovery = static_cast<int>(Recovery::selective);
    star.message(0, 1, 8'000'000);
    Engine engine(star.ready());
    CHECK(engine.advance(kForever, 3'000'000) == State::finished);
    CHECK(engine.counters().delivered_bytes == 8'000'000);
    const std::int64_t alone_ps = 800'000'000;  // 8 MB over one cable
    if (routing == Routing::hash) CHECK(engine.now_ps() > alone_ps);
    if (routing == Routing::ugal) CHECK(engine.now_ps() < alone_ps / 2);
}

void routes_find_all_shortest() {
    // Two leaves, two spines: from leaf 0 to an endpoint at leaf 1 there are two ways, back down one.
    std::vector<Wire> wires;
    for (int leaf = 0; leaf < 2; ++leaf) {
        for (int spine = 2; spine < 4; ++spine) {
            wires.push_back({leaf, spine, 1});
            wires.push_back({spine, leaf, 1});
        }
        wires.push_back({leaf, -1 - leaf, 1});
        wires.push_back({-1 - leaf, leaf, 1});
    }
    Routes routes;
    routes.build(wires, std::vector<bool>(wires.size(), true), 4, 2, true);
    CHECK(routes.num_groups() == 4);  // the leaves' endpoints, and the spines, over which detours may go
    CHECK(routes.home(2) == 2 && routes.home(3) == 3);
    CHECK(routes.distance(0, 3) == 1);
    CHECK(routes.set(routes.set_of(0, routes.group(1))).count == 2);
    CHECK(routes.set(routes.set_of(2, routes.group(1))).count == 1);
    CHECK(routes.set_of(1, routes.group(1)) == Routes::kAttached);
    CHECK(routes.distance(0, routes.group(1)) == 2);
    std::vector<bool> up(wires.size(), true);
    up[0] = up[1] = false;
    routes.build(wires, up, 4, 2, false);
    CHECK(routes.num_groups() == 2);
    CHECK(routes.set(routes.set_of(0, routes.group(1))).count == 1);
}

void bad_input_is_refused() {
    Star star(2);
    star.message(0, 1, 10);
    star.goal[0] = 7;
    const auto text = check::thrown<std::invalid_argument>([&] { Engine engine(star.ready()); });
    CHECK(text.find("destination of connection 0") != std::string::npos);
    Star waits(2);
    waits.message(0, 1, 10, 5);
    CHECK(check::thrown<std::invalid_argument>([&] { Engine engine(waits.ready()); }) != "");
}

}  // namespace

SUITE(packet) {
    the_pool_may_grow_while_a_packet_is_received();
    lost_repeats_are_found();
    calendar_keeps_order();
    crowded_buckets_are_sorted();
    buckets_may_be_opened_early();
    a_window_of_bits_moves_and_grows();
    one_packet_takes_its_time();
    messages_wait();
    ways_lead_where_they_should();
    incast_fills_the_link(false, false);
    incast_fills_the_link(true, false);
    incast_fills_the_link(false, true);
    for (int transport = 0; transport <= 9; ++transport) {
        for (int recovery = transport == 7 ? 1 : 0; recovery < 2; ++recovery) {
            every_transport_ends(transport, recovery, false);
            every_transport_ends(transport, recovery, true);
        }
    }
    routes_find_all_shortest();
    for (const Routing routing : {Routing::hash, Routing::valiant, Routing::ugal}) {
        packets_take_detours(routing, {0, 0, 0, 0});
        packets_take_detours(routing, {0, 1, 2, 3});
        packets_take_detours(routing, {-1, -1, -1, -1});
    }
    bad_input_is_refused();
}
