// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/api_server/api_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::json;

// Where a resource is listed.
struct Collection {
  const char* path;
  const char* api_version;
  const char* kind;
  Resource resource;
};
constexpr Collection kCollections[] = {
    {"/api/v1/nodes", "v1", "Node", Resource::kNodes},
    {"/api/v1/services", "v1", "Service", Resource::kServices},
    {"/apis/discovery.k8s.io/v1/endpointslices", "discovery.k8s.io/v1", "EndpointSlice",
     Resource::kEndpointSlices},
    {"/apis/discovery.k8s.io/v1beta1/endpointslices", "discovery.k8s.io/v1beta1", "EndpointSlice",
     Resource::kEndpointSlices},
    {"/apis/networking.k8s.io/v1/servicecidrs", "networking.k8s.io/v1", "ServiceCIDR",
     Resource::kServiceCidrs},
};

Json As(const Collection& collection, Json object) {
  object["apiVersion"] = collection.api_version;
  return object;
}

std::string EventText(const char* type, const Json& object) {
  return absl::StrCat(Json{{"type", type}, {"object", object}}.dump(), "\n");
}

// What there is now, and what has happened to it: resource versions count events.
class EventLog {
 public:
  struct Event {
    Resource resource;
    // "ADDED", "MODIFIED", "DELETED".
    const char* type;
    Json object;
  };
  struct Snapshot {
    std::vector<Json> items;
    // How many events led to it.
    size_t version = 0;
  };

  void Set(const Objects& objects) {
    const absl::MutexLock lock(&mutex_);
    for (auto& [resource, old] : objects_) {
      const auto fresh = objects.find(resource);
      for (const auto& [key, object] : old) {
        if (fresh != objects.end() && fresh->second.contains(key)) continue;
        Add(resource, "DELETED", object);
        versioned_[resource].erase(key);
      }
    }
    for (const auto& [resource, fresh] : objects) {
      for (const auto& [key, object] : fresh) {
        const auto& old = objects_[resource];
        const auto same = old.find(key);
        if (same != old.end() && same->second == object) continue;
        Add(resource, same == old.end() ? "ADDED" : "MODIFIED", object);
        versioned_[resource][key] = events_.back().object;
      }
    }
    objects_ = objects;
  }

  Snapshot Of(Resource resource) const {
    const absl::MutexLock lock(&mutex_);
    Snapshot snapshot;
    snapshot.version = events_.size();
    const auto objects = versioned_.find(resource);
    if (objects == versioned_.end()) return snapshot;
    for (const auto& [key, object] : objects->second) snapshot.items.push_back(object);
    return snapshot;
  }

  // The events after `version`, of all resources: waits for the first. Empty: the end.
  std::vector<Event> After(size_t version) const {
    const absl::MutexLock lock(&mutex_);
    const auto ready = [this, version]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return closed_ || events_.size() > version;
    };
    mutex_.Await(absl::Condition(&ready));
    if (closed_) return {};
    return {events_.begin() + static_cast<std::ptrdiff_t>(version), events_.end()};
  }

  // Ends all waiting.
  void Close() {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  void Add(Resource resource, const char* type, Json object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    object["metadata"]["resourceVersion"] = absl::StrCat(events_.size() + 1);
    events_.push_back({resource, type, std::move(object)});
  }

  mutable absl::Mutex mutex_;
  Objects objects_ ABSL_GUARDED_BY(mutex_);
  // What objects_ has, with resourceVersion.
  Objects versioned_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// One open watch. In a thread of its own, which waits.
class Watch {
 public:
  Watch(const EventLog& log, const Collection& collection, size_t version)
      : log_(log), collection_(collection), version_(version) {}

  // Begins with all that there is, and a bookmark that says so.
  void SendFirst(const EventLog::Snapshot& snapshot) {
    for (const Json& object : snapshot.items) {
      pending_ += EventText("ADDED", As(collection_, object));
    }
    const Json bookmark = {{"kind", collection_.kind},
                           {"metadata",
                            {{"resourceVersion", absl::StrCat(snapshot.version)},
                             {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}};
    pending_ += EventText("BOOKMARK", As(collection_, bookmark));
  }

  ssize_t Read(char* buffer, size_t max) {
    while (pending_.empty()) {
      const std::vector<EventLog::Event> events = log_.After(version_);
      if (events.empty()) return MHD_CONTENT_READER_END_OF_STREAM;
      version_ += events.size();
      for (const EventLog::Event& event : events) {
        if (event.resource != collection_.resource) continue;
        pending_ += EventText(event.type, As(collection_, event.object));
      }
    }
    const size_t count = std::min(max, pending_.size());
    std::memcpy(buffer, pending_.data(), count);
    pending_.erase(0, count);
    return static_cast<ssize_t>(count);
  }

 private:
  const EventLog& log_;
  const Collection& collection_;
  size_t version_;
  // White space, with which the answer's head is sent at once.
  std::string pending_ = "\n";
};

class Server : public ApiServer {
 public:
  ~Server() override {
    log_.Close();
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  absl::Status Listen() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    daemon_ = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, nullptr,
        nullptr, &Server::Handle, this, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      return absl::UnavailableError("the stand-in API server cannot listen on 127.0.0.1");
    }
    port_ = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  void Set(const Objects& objects) override { log_.Set(objects); }

 private:
  static MHD_Result Send(MHD_Connection* connection, unsigned int status, const Json& body) {
    std::string text = body.dump();
    MHD_Response* response =
        MHD_create_response_from_buffer(text.size(), text.data(), MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    const MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
  }

  static MHD_Result Refuse(MHD_Connection* connection, unsigned int status, const char* reason) {
    return Send(connection, status,
                {{"kind", "Status"},
                 {"apiVersion", "v1"},
                 {"status", "Failure"},
                 {"reason", reason},
                 {"code", status}});
  }

  static absl::string_view Argument(MHD_Connection* connection, const char* name) {
    const char* value = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
    return value == nullptr ? "" : value;
  }

  MHD_Result List(MHD_Connection* connection, const Collection& collection) const {
    const EventLog::Snapshot snapshot = log_.Of(collection.resource);
    return Send(connection, MHD_HTTP_OK,
                {{"kind", absl::StrCat(collection.kind, "List")},
                 {"apiVersion", collection.api_version},
                 {"metadata", {{"resourceVersion", absl::StrCat(snapshot.version)}}},
                 {"items", snapshot.items}});
  }

  MHD_Result Get(MHD_Connection* connection, const Collection& collection,
                 absl::string_view name) const {
    for (const Json& object : log_.Of(collection.resource).items) {
      if (object["metadata"].value("name", "") == name) {
        return Send(connection, MHD_HTTP_OK, As(collection, object));
      }
    }
    return Refuse(connection, MHD_HTTP_NOT_FOUND, "NotFound");
  }

  MHD_Result OpenWatch(MHD_Connection* connection, const Collection& collection) const {
    const EventLog::Snapshot snapshot = log_.Of(collection.resource);
    const bool first = Argument(connection, "sendInitialEvents") == "true";
    size_t version = 0;
    if (first || !absl::SimpleAtoi(Argument(connection, "resourceVersion"), &version) ||
        version > snapshot.version) {
      version = snapshot.version;
    }
    auto watch = std::make_unique<Watch>(log_, collection, version);
    if (first) watch->SendFirst(snapshot);
    MHD_Response* response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, size_t{16} * 1024,
        [](void* self, uint64_t /*position*/, char* buffer, size_t max) {
          return static_cast<Watch*>(self)->Read(buffer, max);
        },
        watch.release(), [](void* self) { delete static_cast<Watch*>(self); });
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    const MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
  }

  MHD_Result Answer(MHD_Connection* connection, absl::string_view path) const {
    for (const Collection& collection : kCollections) {
      absl::string_view rest = path;
      if (!absl::ConsumePrefix(&rest, collection.path)) continue;
      if (rest.empty()) {
        const absl::string_view watch = Argument(connection, "watch");
        return watch == "true" || watch == "1" ? OpenWatch(connection, collection)
                                               : List(connection, collection);
      }
      if (absl::ConsumePrefix(&rest, "/")) return Get(connection, collection, rest);
    }
    return Refuse(connection, MHD_HTTP_NOT_FOUND, "NotFound");
  }

  // What is posted, events, is read and refused: who posts them only logs that.
  static MHD_Result Handle(void* self, MHD_Connection* connection, const char* url,
                           const char* method, const char* /*version*/, const char* /*upload*/,
                           size_t* upload_size, void** seen) {
    static constexpr char kSeen = 0;
    if (*seen == nullptr) {
      *seen = const_cast<char*>(&kSeen);
      return MHD_YES;
    }
    if (*upload_size > 0) {
      *upload_size = 0;
      return MHD_YES;
    }
    if (std::strcmp(method, MHD_HTTP_METHOD_GET) != 0) {
      return Refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "MethodNotAllowed");
    }
    return static_cast<const Server*>(self)->Answer(connection, url);
  }

  EventLog log_;
  MHD_Daemon* daemon_ = nullptr;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ApiServer>> ApiServer::Start() {
  auto server = std::make_unique<Server>();
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace kipt::skew
