#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "teson/net/tls.h"

namespace teson::net::test {

using Key = std::shared_ptr<EVP_PKEY>;
using Certificate = std::shared_ptr<X509>;

inline Key make_key() {
  return {EVP_EC_gen("P-256"), EVP_PKEY_free};
}

/// An authority for the duration of a test, and those it has signed, as files of a folder.
class Authority {
 public:
  explicit Authority(std::filesystem::path folder, const std::string& name = "authority")
      : folder_(std::move(folder)), name_(name), key_(make_key()) {
    certificate_ = sign(name, key_, 3600);
    write(name, certificate_, nullptr);
  }

  /// A certificate and its key, valid for so many seconds from now.
  TlsFiles member(const std::string& name, long valid_seconds = 3600) {
    const Key key = make_key();
    write(name, sign(name, key, valid_seconds), key);
    return {file(name + ".crt"), file(name + ".key"), file(name_ + ".crt")};
  }

 private:
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  Certificate sign(const std::string& name, const Key& key, long valid_seconds) {
    Certificate made(X509_new(), X509_free);
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -7200);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), valid_seconds);
    X509_set_pubkey(made.get(), key.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509* const issuer = certificate_ ? certificate_.get() : made.get();
    if (!certificate_) {
      const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> may_sign(
          X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"),
          &X509_EXTENSION_free);
      X509_add_ext(made.get(), may_sign.get(), -1);
    }
    X509_set_issuer_name(made.get(), X509_get_subject_name(issuer));
    if (X509_sign(made.get(), key_.get(), EVP_sha256()) == 0) std::abort();
    return made;
  }

  void write(const std::string& name, const Certificate& certificate, const Key& key) const {
    const auto open = [&](const std::string& path) {
      return std::unique_ptr<std::FILE, int (*)(std::FILE*)>(std::fopen(path.c_str(), "w"),
                                                             &std::fclose);
    };
    PEM_write_X509(open(file(name + ".crt")).get(), certificate.get());
    if (key)
      PEM_write_PrivateKey(open(file(name + ".key")).get(), key.get(), nullptr, nullptr, 0, nullptr,
                           nullptr);
  }

  std::filesystem::path folder_;
  std::string name_;
  Key key_;
  Certificate certificate_;
  long serial_ = 0;
};

}  // namespace teson::net::test
