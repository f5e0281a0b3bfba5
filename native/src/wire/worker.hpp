// A thread of the wire: reads and writes its halves of connections, and does codec work between.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "connection.hpp"
#include "handshake.hpp"
#include "hub.hpp"
#include "socket.hpp"

namespace syncline::wire {

class Worker {
   public:
    // Worker 0 also listens, dials, and looks after stalled lines.
    Worker(Hub& hub, int number, std::vector<Socket> listeners);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void start();
    void join();
    bool wake();  // whether nobody else has
    bool is_idle() const { return is_idle_; }
    double cpu_s() const;

    // With the hub's lock held.
    void dial(int line, bool is_probe);
    void adopt(int line, std::uint64_t epoch, Socket socket, bool is_reader);
    const std::vector<Socket>& listeners() const { return listeners_; }

   private:
    struct Adopted {
        int line;
        std::uint64_t epoch;
        Socket socket;
        bool is_reader;
    };
    struct Dialed {
        int line;
        bool is_probe;
    };

    void run();
    void take_orders();
    bool write_all();
    void wait(int timeout_ms);
    void handle(int fd, std::uint32_t happened);
    void watch(Writer& writer);
    void drop_reader(std::size_t place);
    void drop_writer(std::size_t place);
    void ended(Half& half);
    void close_old();
    void let_go();
    void take(Adopted order);
    void begin_dial(const Dialed& order);
    void accept_from(const Socket& listener);
    void advance(std::size_t place, bool writable);
    void proved(Handshake& handshake);
    void refused(Handshake& handshake);
    void look_after(double now);
    void add(int fd, std::uint32_t events);

    Hub& hub_;
    const int number_;
    Socket epoll_, event_;
    std::vector<Socket> listeners_;
    std::vector<std::unique_ptr<Reader>> readers_;
    std::vector<std::unique_ptr<Writer>> writers_;
    std::vector<std::unique_ptr<Handshake>> handshakes_;
    std::vector<Adopted> adopted_;
    std::vector<Dialed> dialed_;
    std::atomic<bool> is_idle_{false}, is_signalled_{false};
    double next_look_s_ = 0.0;
    std::thread thread_;
};

}  // namespace syncline::wire
