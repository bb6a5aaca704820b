// Owns FUSOR_API: what libfusor.so exports. Everything else in it has hidden visibility.
#pragma once

#define FUSOR_API __attribute__((visibility("default")))
