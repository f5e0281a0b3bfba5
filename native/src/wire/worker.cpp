#include "worker.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace syncline::wire {
namespace {

constexpr double kLookS = 0.02;
constexpr double kHandshakeS = 5.0;
constexpr std::size_t kMostHandshakes = 1024;

}  // namespace

Worker::Worker(Hub& hub, int number, std::vector<Socket> listeners)
    : hub_(hub),
      number_(number),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      listeners_(std::move(listeners)) {
    if (epoll_.fd() < 0 || event_.fd() < 0) throw std::runtime_error("the wire needs epoll and eventfd");
    add(event_.fd(), EPOLLIN);
    for (const Socket& listener : listeners_) add(listener.fd(), EPOLLIN);
}

Worker::~Worker() { join(); }

void Worker::start() {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), ("wire-" + std::to_string(number_)).c_str());
}

void Worker::join() {
    wake();
    if (thread_.joinable()) thread_.join();
}

bool Worker::wake() {
    if (is_signalled_.exchange(true)) return false;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t done = ::write(event_.fd(), &one, sizeof one);
    return true;
}

double Worker::cpu_s() const {
    clockid_t clock;
    timespec spent{};
    auto& thread = const_cast<std::thread&>(thread_);
    if (!thread.joinable() || pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return 0.0;
    clock_gettime(clock, &spent);
    return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

void Worker::add(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event);
}

void Worker::dial(int line, bool is_probe) {
    dialed_.push_back({line, is_probe});
    wake();
}

void Worker::adopt(int line, std::uint64_t epoch, Socket socket, bool is_reader) {
    adopted_.push_back({line, epoch, std::move(socket), is_reader});
    wake();
}

void Worker::run() {
    while (!hub_.is_stopping) {
        take_orders();
        bool busy = write_all();
        if (const auto task = hub_.pop_task()) {
            task();
            busy = true;
        }
        const double now = now_s();
        if (number_ == 0 && now >= next_look_s_) look_after(now);
        is_idle_ = true;
        const bool sleeps = !busy && !hub_.has_tasks();
        wait(!sleeps ? 0 : number_ == 0 ? static_cast<int>(1000 * kLookS) : 1000);
        is_idle_ = false;
    }
    while (!readers_.empty()) drop_reader(readers_.size() - 1);
    while (!writers_.empty()) drop_writer(writers_.size() - 1);
}

void Worker::take_orders() {
    std::vector<Adopted> adopted;
    std::vector<Dialed> dialed;
    {
        const std::lock_guard hold(hub_.mutex);
        adopted.swap(adopted_);
        dialed.swap(dialed_);
    }
    close_old();
    let_go();
    for (Adopted& order : adopted) take(std::move(order));
    for (const Dialed& order : dialed) begin_dial(order);
}

// Close what is to be closed, and what belongs to a connection that its other half, or a newer one, has ended.
void Worker::close_old() {
    std::vector<std::size_t> readers, writers;
    {
        const std::lock_guard hold(hub_.mutex);
        const auto is_old = [](Half& half) { return half.line().must_close || half.line().epoch != half.epoch(); };
        for (std::size_t k = readers_.size(); k-- > 0;) {
            if (is_old(*readers_[k])) readers.push_back(k);
        }
        for (std::size_t k = writers_.size(); k-- > 0;) {
            if (is_old(*writers_[k])) writers.push_back(k);
        }
    }
    for (const std::size_t place : readers) drop_reader(place);
    for (const std::size_t place : writers) drop_writer(place);
}

// Lines that deliver nothing keep no message from being over once others have brought it.
void Worker::let_go() {
    for (const auto& writer : writers_) {
        if (writer->line().must_let_go.exchange(false)) writer->let_go();
    }
}

void Worker::take(Adopted order) {
    Line& line = *hub_.lines[static_cast<std::size_t>(order.line)];
    if (order.is_reader) {
        add(order.socket.fd(), EPOLLIN);
        readers_.push_back(std::make_unique<Reader>(hub_, line, order.epoch, std::move(order.socket)));
        return;
    }
    limit_unsent(order.socket, hub_.options.unsent_bytes);
    writers_.push_back(std::make_unique<Writer>(hub_, line, order.epoch, std::move(order.socket)));
    const std::lock_guard hold(hub_.mutex);
    if (line.epoch == order.epoch) hub_.came_up(line);
}

bool Worker::write_all() {
    bool busy = false;
    for (std::size_t k = writers_.size(); k-- > 0;) {
        Writer& writer = *writers_[k];
        const bool is_dirty = writer.line().is_dirty.exchange(false);
        if (!is_dirty && !writer.has_more()) continue;
        if (writer.is_blocked()) {
            if (is_dirty) writer.line().is_dirty = true;  // looked at again when there is room
            continue;
        }
        if (!writer.write()) {
            drop_writer(k);
            continue;
        }
        watch(writer);
        busy = busy || (writer.has_more() && !writer.is_blocked());
    }
    return busy;
}

void Worker::watch(Writer& writer) {
    if (writer.is_blocked() == writer.waits_to_write) return;
    writer.waits_to_write = writer.is_blocked();
    if (writer.waits_to_write) {
        add(writer.fd(), EPOLLOUT);
    } else {
        epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, writer.fd(), nullptr);
    }
}

void Worker::drop_reader(std::size_t place) {
    const auto reader = std::move(readers_[place]);
    readers_.erase(readers_.begin() + static_cast<std::ptrdiff_t>(place));
    epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, reader->fd(), nullptr);
    ended(*reader);
}

void Worker::drop_writer(std::size_t place) {
    const auto writer = std::move(writers_[place]);
    writers_.erase(writers_.begin() + static_cast<std::ptrdiff_t>(place));
    if (writer->waits_to_write) epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, writer->fd(), nullptr);
    ended(*writer);
}

// The first half that ends ends the connection.
void Worker::ended(Half& half) {
    ::shutdown(half.fd(), SHUT_RDWR);
    const std::lock_guard hold(hub_.mutex);
    Line& line = half.line();
    if (line.epoch != half.epoch()) return;
    ++line.epoch;
    line.must_close = line.is_dialing = false;
    hub_.went_down(line, half.why().empty() ? "it was closed here" : half.why());
    for (const int other : {line.reader, line.worker}) {
        if (other != number_) hub_.workers[static_cast<std::size_t>(other)]->wake();
    }
}

void Worker::wait(int timeout_ms) {
    std::array<epoll_event, 64> happened{};
    const int count = epoll_wait(epoll_.fd(), happened.data(), static_cast<int>(happened.size()), timeout_ms);
    for (int k = 0; k < count; ++k) {
        const epoll_event& event = happened[static_cast<std::size_t>(k)];
        handle(event.data.fd, event.events);
    }
}

void Worker::handle(int fd, std::uint32_t happened) {
    if (fd == event_.fd()) {
        std::uint64_t count;
        [[maybe_unused]] const ssize_t done = ::read(event_.fd(), &count, sizeof count);
        is_signalled_ = false;
        return;
    }
    for (std::size_t k = 0; k < readers_.size(); ++k) {
        Reader& reader = *readers_[k];
        if (reader.fd() != fd) continue;
        const bool goes_on = reader.read();
        if (reader.has_answer()) hub_.touch(reader.line(), number_);
        if (!goes_on) drop_reader(k);
        return;
    }
    for (const auto& writer : writers_) {
        if (writer->fd() != fd) continue;
        writer->unblock();
        writer->line().is_dirty = true;
        watch(*writer);
        return;
    }
    for (const Socket& listener : listeners_) {
        if (listener.fd() == fd) return accept_from(listener);
    }
    for (std::size_t k = 0; k < handshakes_.size(); ++k) {
        if (handshakes_[k]->fd() == fd) return advance(k, (happened & EPOLLOUT) != 0);
    }
}

void Worker::begin_dial(const Dialed& order) {
    Line& line = *hub_.lines[static_cast<std::size_t>(order.line)];
    Endpoint to;
    {
        const std::lock_guard hold(hub_.mutex);
        const auto& endpoints = hub_.peers[static_cast<std::size_t>(line.peer)].endpoints;
        to = endpoints[static_cast<std::size_t>(line.rail) % endpoints.size()];
    }
    const auto& rails = hub_.options.rails;
    const Rail& from = rails[static_cast<std::size_t>(line.rail) % rails.size()];
    try {
        auto handshake = std::make_unique<Handshake>(
            syncline::wire::dial(from, to), hub_.options.secret,
            hello_from(hub_.options.rank, line.peer, line.rail, line.index), now_s() + (order.is_probe ? 1.0 : kHandshakeS));
        handshake->line = order.line;
        handshake->is_probe = order.is_probe;
        add(handshake->fd(), EPOLLIN | EPOLLOUT);
        handshakes_.push_back(std::move(handshake));
    } catch (const std::runtime_error&) {
        const std::lock_guard hold(hub_.mutex);  // no route to it just now: tried again
        line.is_dialing = false;
    }
}

void Worker::accept_from(const Socket& listener) {
    for (Socket socket = accept_on(listener); socket.fd() >= 0; socket = accept_on(listener)) {
        if (handshakes_.size() >= kMostHandshakes) continue;
        auto handshake = std::make_unique<Handshake>(std::move(socket), hub_.options.secret, now_s() + kHandshakeS);
        add(handshake->fd(), EPOLLIN);
        handshakes_.push_back(std::move(handshake));
    }
}

void Worker::advance(std::size_t place, bool writable) {
    Handshake& handshake = *handshakes_[place];
    const auto state = handshake.advance(writable);
    if (state == Handshake::State::going) {
        if (handshake.is_dialer() && writable) {
            epoll_event event{};
            event.events = EPOLLIN;
            event.data.fd = handshake.fd();
            epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, handshake.fd(), &event);
        }
        return;
    }
    const auto over = std::move(handshakes_[place]);
    handshakes_.erase(handshakes_.begin() + static_cast<std::ptrdiff_t>(place));
    if (state == Handshake::State::proved) {
        proved(*over);
    } else {
        refused(*over);
    }
}

void Worker::proved(Handshake& handshake) {
    const Hello hello = handshake.hello();
    epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, handshake.fd(), nullptr);
    const std::lock_guard hold(hub_.mutex);
    int id = handshake.line;
    if (!handshake.is_dialer()) {
        id = hello.to == hub_.options.rank ? hub_.line_at(hello.from, hello.rail, hello.index) : -1;
        if (id < 0 || hello.from < hub_.options.rank) {
            ++hub_.num_strangers;
            return;
        }
    }
    Line& line = *hub_.lines[static_cast<std::size_t>(id)];
    line.is_dialing = false;
    if (handshake.is_probe) return;
    if (line.is_up) hub_.went_down(line, "the other end dialed again");
    Socket socket = handshake.take(), second = second_of(socket);
    ++line.epoch;
    if (second.fd() < 0) return;  // no descriptors left: dialed again
    line.is_dialing = handshake.is_dialer();  // until its thread has it, it is neither up nor to be dialed
    hub_.workers[static_cast<std::size_t>(line.reader)]->adopt(id, line.epoch, std::move(second), true);
    hub_.workers[static_cast<std::size_t>(line.worker)]->adopt(id, line.epoch, std::move(socket), false);
}

void Worker::refused(Handshake& handshake) {
    const std::lock_guard hold(hub_.mutex);
    if (!handshake.is_dialer()) {
        if (!handshake.has_said_anything()) return;  // a look whether anybody listens
        ++hub_.num_strangers;
        if (hub_.num_strangers <= 10) hub_.tell(-1, -1, "somebody who does not know the secret was turned away");
        return;
    }
    Line& line = *hub_.lines[static_cast<std::size_t>(handshake.line)];
    line.is_dialing = false;
    const Peer& peer = hub_.peers[static_cast<std::size_t>(line.peer)];
    const bool reached = std::any_of(peer.lines.begin(), peer.lines.end(),
                                     [&](int id) { return hub_.lines[static_cast<std::size_t>(id)]->is_up; });
    if (handshake.error() == ECONNREFUSED && !reached) hub_.lose(line.peer, "its process has ended");
}

void Worker::look_after(double now) {
    next_look_s_ = now + kLookS;
    for (std::size_t k = handshakes_.size(); k-- > 0;) {
        if (handshakes_[k]->deadline_s() > now) continue;
        const auto over = std::move(handshakes_[k]);
        handshakes_.erase(handshakes_.begin() + static_cast<std::ptrdiff_t>(k));
        refused(*over);
    }
    const std::lock_guard hold(hub_.mutex);
    hub_.tick(now);
}

}  // namespace syncline::wire
